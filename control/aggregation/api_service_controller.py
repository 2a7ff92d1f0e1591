"""Controller of APIServices: writes the local ones, watches the extensions, and reports whether each is available.

It runs when an APIService, a definition, or a Service or endpoint slice that an extension needs changes. It also runs every
30 s while extension servers exist, because no event reports their failure, and after failed writes.
Nothing that one extension answers, and no object that one user writes, blocks the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from control import start_steps
from control.aggregation import availability, registrations, stored
from control.aggregation.aggregator import Aggregator
from control.aggregation.checks import Checks
from control.aggregation.remote import FrontProxy, Remote
from control.dialing.service_backend import SERVICE_NAME
from control.event_loop.pacing import TimeSlice
from control.registry import controller_support, deletion
from control.registry.apiextensions.definition_index import DefinitionIndex
from control.registry.context import SERVER, Context
from control.registry.deletion_plan import DeleteOptions
from control.registry.registry import Registry
from control.storage.store import StoreError
from kube import cancellation
from kube.clock import format_time
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_path

log = logging.getLogger(__name__)
RECHECK_SECONDS = 30.0


def _resource(group: str, plural: str) -> Resource:
    found = by_path(group, "v1", plural)
    assert found is not None
    return found


SERVICES = _resource("apiregistration.k8s.io", "apiservices")
DEFINITIONS = _resource("apiextensions.k8s.io", "customresourcedefinitions")
REACHED_BY = (_resource("", "services"), _resource("discovery.k8s.io", "endpointslices"))


class APIServiceController:
    """Reconciles APIServices, and keeps `aggregator.extensions.remotes` current."""

    def __init__(
        self,
        registry: Registry,
        aggregator: Aggregator,
        front_proxy: FrontProxy,
        done: Callable[..., None] = lambda *steps: None,
        *,
        resource_metrics: bool = True,
    ) -> None:
        self.registry, self.aggregator, self.front_proxy, self._done = registry, aggregator, front_proxy, done
        self._changed = asyncio.Event()
        self._built_in = registrations.built_in(resource_metrics=resource_metrics)
        self._own = registrations.places(resource_metrics=resource_metrics)
        self._definitions = DefinitionIndex(registry.cached(DEFINITIONS))
        self._checks = Checks(self._check_one, registry.clock)

    async def run(self) -> None:
        """Work until cancelled; after a failure it may be started again."""
        try:
            async with asyncio.TaskGroup() as group:
                for resource in (SERVICES, DEFINITIONS, *REACHED_BY):
                    heard = functools.partial(self._handle_change, resource)
                    work = functools.partial(controller_support.follow, self.registry, resource, heard)
                    cancellation.start(group, work, f"aggregation-follows-{resource.plural}")
                self._changed.set()
                cancellation.start(group, self._work, "aggregation")
        finally:
            await self._checks.close()

    def _handle_change(self, resource: Resource, obj: Object) -> None:
        if resource not in REACHED_BY or self._reaches(resource, obj):
            self._changed.set()

    def _reaches(self, resource: Resource, obj: Object) -> bool:
        meta = obj["metadata"]
        name = meta["name"] if resource.plural == "services" else (meta.get("labels") or {}).get(SERVICE_NAME)
        wanted = [r.spec["service"] for r in self.aggregator.extensions.remotes.values()]
        return any((w["namespace"], w["name"]) == (meta.get("namespace"), name) for w in wanted)

    async def _work(self) -> None:
        first, whole = True, True
        while True:
            limit = RECHECK_SECONDS if self.aggregator.extensions.remotes or not whole else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._changed.wait()
            self._changed.clear()
            try:
                if first:
                    await asyncio.gather(*self._missing(self._built_in))
                    first = False
                whole = await self._register()
                self._done(start_steps.AUTOREGISTRATION, start_steps.AUTOREGISTERED, start_steps.LOCAL_AVAILABLE)
                self._adopt()
                # Whether the others answer is for their APIServices to say, not for this server's readiness.
                self._done(start_steps.AGGREGATOR_INFORMERS, start_steps.REGISTRATION, start_steps.REMOTE_AVAILABLE)
                self._done(*start_steps.AGGREGATED_DOCUMENTS)
                self._checks.ask(self.aggregator.extensions.remotes)
                whole &= await self._say_local()
            except (StatusError, StoreError) as error:
                log.warning("reconciling APIServices failed and will be retried: %s", error)
                await self.registry.clock.sleep(1)
                self._changed.set()

    async def _services(self) -> dict[str, Object]:
        """Return the APIServices, and no objects that only stand in their folder."""
        found, time_slice = dict[str, Object](), TimeSlice()
        for entry in self.registry.cached(SERVICES).list().entries:
            await time_slice.step(entry.undecoded)
            if stored.readable(entry.obj):
                found[entry.obj["metadata"]["name"]] = entry.obj
        return found

    # -- the local ones -------------------------------------------------------------------------------------------
    def _missing(self, wanted: Iterable[Object]) -> list[Awaitable[None]]:
        present = controller_support.stored(self.registry, SERVICES)
        return [self._create(obj) for obj in wanted if obj["metadata"]["name"] not in present]

    async def _register(self) -> bool:
        """Write and remove the APIServices of definitions; returns whether all of them could be."""
        await self._definitions.refresh()
        wanted = registrations.custom(self._definitions.every(), self._own)
        kept = {obj["metadata"]["name"] for obj in (*self._built_in, *wanted)}
        surplus = [
            deletion.delete(self.registry, Context(SERVER), SERVICES, "", name, DeleteOptions(grace_period=0))
            for name, obj in (await self._services()).items()
            if registrations.is_surplus(obj, kept)
        ]
        return await _each([*self._missing(wanted), *surplus])

    async def _create(self, obj: Object) -> None:
        await controller_support.create(self.registry, SERVICES, obj)
        await self._say(obj, availability.LOCAL)

    async def _say_local(self) -> bool:
        return await _each(
            self._say(obj, availability.LOCAL)
            for obj in (await self._services()).values()
            if not (obj.get("spec") or {}).get("service") and not _says(obj, availability.LOCAL)
        )

    # -- the others -----------------------------------------------------------------------------------------------
    def _adopt(self) -> None:
        """Store the group versions of extension servers; the state of one is kept while its backend is unchanged."""
        remotes: dict[tuple[str, str], Remote] = {}
        for entry in self.registry.cached(SERVICES).list().entries:
            if not stored.readable(entry.obj) or not entry.obj["spec"].get("service"):
                continue
            spec = entry.obj["spec"]
            place = (spec.get("group", ""), spec.get("version", ""))
            before = self.aggregator.extensions.remotes.get(place)
            if before is not None and before.spec == spec:
                before.service = entry.obj
                remotes[place] = before
            else:
                remotes[place] = remote = Remote.of(entry.obj, entry.revision, self.front_proxy)
                if before is not None and before.spec["service"] == spec["service"]:
                    remote.inherit(before)
        self.aggregator.extensions.remotes = remotes

    async def _check_one(self, remote: Remote) -> None:
        verdict = await availability.check(remote, self.aggregator.lookup)
        remote.available, remote.reason = verdict[0], verdict[1]
        if not _says(remote.service, verdict):
            await self._say(remote.service, verdict)
        if remote.available:
            await availability.read_documents(remote, self.aggregator.lookup)

    async def _say(self, obj: Object, verdict: availability.Verdict) -> None:
        condition = availability.condition(verdict, format_time(self.registry.clock.now()))
        await controller_support.set_condition(self.registry, SERVICES, obj["metadata"]["name"], condition)


async def _each(works: Iterable[Awaitable[Any]]) -> bool:
    """Do everything, although some of it fails; returns whether all succeeded."""
    found = await asyncio.gather(*works, return_exceptions=True)
    failures = [e for e in found if isinstance(e, BaseException) and not (isinstance(e, StatusError) and e.not_found)]
    for error in failures:
        log.warning("reconciling an APIService failed and will be retried: %s", error)
    return not failures


def _says(obj: Object, verdict: availability.Verdict) -> bool:
    condition = stored.available(obj)
    current = (condition.get("status") == "True", condition.get("reason"), condition.get("message"))
    return bool(condition) and current == verdict
