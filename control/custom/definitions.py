"""Looks up served custom resources in the definitions that the watch cache holds, at the moment of a request.

Nothing has to be installed when a definition comes, and with several servers on one store each sees it as soon as its cache
does. What a definition means is compiled when its first request comes, and again when its spec has changed; then the
watches on its objects end, as upstream's do. Large ones are compiled outside the event loop (`prepare`), and their rules when
they are first needed (control/schemas/rules.py). Nothing is served of a definition in a group version that the server itself
serves, as upstream (TestCRDShadowGroup), whose clients would use its kinds for the built-in ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping

import msgspec

from control.custom.webhooks import Webhooks
from control.event_loop import offload
from control.registry.apiextensions.stored import readable, servable
from control.registry.context import SERVER
from control.registry.registry import Registry
from control.registry.served import ServedResource
from control.storage.entry import Entry
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import RESOURCES, Resource, by_path

log = logging.getLogger(__name__)
_found = by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
assert _found is not None
DEFINITIONS: Resource = _found


def condition(definition: Object, kind: str) -> Object | None:
    """Return a definition's condition of a type."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), None)


def holds(definition: Object, kind: str) -> bool:
    """Return whether a definition's condition is True."""
    found = condition(definition, kind)
    return found is not None and found.get("status") == "True"


class Served(msgspec.Struct):
    """A compiled definition. `revision` is the entry's it was made or last confirmed from."""

    revision: int
    uid: str
    made_of: bytes
    resources: Mapping[str, ServedResource]


class Definitions:
    """The custom resources of one server, none of them in a group version of `built_in`."""

    def __init__(self, registry: Registry, webhooks: Webhooks, built_in: Iterable[Resource] = RESOURCES) -> None:
        self.registry, self.webhooks = registry, webhooks
        self._built_in = frozenset((resource.group, resource.version) for resource in built_in)
        self._cached = registry.cached(DEFINITIONS)
        self._served: dict[str, Served] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        self._preparing: dict[str, asyncio.Lock] = {}
        self._stopped: dict[str, tuple[int, int]] = {}
        """Definitions during whose compilation a step was stopped for holding the event loop too long: revision and times."""
        self._prepared = -1
        self._listed: tuple[int, list[ServedResource]] = (-1, [])

    # -- looking up -----------------------------------------------------------------------------------------------
    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return the served version of a custom resource, None if there is none."""
        name = f"{plural}.{group}"
        entry = self._cached.get(DEFINITIONS.key("", name))
        if entry is None:
            if name in self._served:
                self._forget(name)
            return None
        return None if (group, version) in self._built_in else self._compiled(name, entry).get(version)

    def every(self) -> list[ServedResource]:
        """Return all served versions, each definition's in the order of preference."""
        if self._listed[0] != self._cached.changed:
            found: list[ServedResource] = []
            for entry in self._cached.list().entries:
                resources = self._compiled(entry.key.rpartition("/")[2], entry).values()
                served = (r for r in resources if (r.group, r.version) not in self._built_in)
                found += sorted(served, key=lambda r: version_rank(r.version))
            self._listed = self._cached.changed, found
        return self._listed[1]

    @property
    def revision(self) -> int:
        """A number that changes when `every` may."""
        return self._cached.changed

    async def prepare(self) -> None:
        """Compile the definitions that came or changed since the last time, so that neither `every` nor `find` has to."""
        if self._prepared == (changed := self._cached.changed):
            return
        for entry in self._cached.list().entries:
            name = entry.key.rpartition("/")[2]
            if not self._is_compiled(name, entry):
                await self._prepare(name, entry)
        self._prepared = changed

    async def _prepare(self, name: str, entry: Entry) -> None:
        """Compile a definition: a large one outside the event loop."""
        async with self._preparing.setdefault(name, asyncio.Lock()):
            if not self._is_compiled(name, entry):
                resources = await self._built(name, entry)
                if self._cached.get(entry.key) is entry and not self._is_compiled(name, entry):
                    self._install(name, entry, resources)
        self._preparing.pop(name, None)

    def _compiled(self, name: str, entry: Entry) -> Mapping[str, ServedResource]:
        if not self._is_compiled(name, entry):
            self._install(name, entry, self._build(name, entry))
        return self._served[name].resources

    def _is_compiled(self, name: str, entry: Entry) -> bool:
        """Return whether what is known of a definition is that of an entry."""
        known = self._served.get(name)
        if known is None:
            return False
        if known.revision != entry.revision:
            if known.made_of != _meaning(entry.obj):
                return False
            known.revision = entry.revision
        return True

    def _install(self, name: str, entry: Entry, resources: Mapping[str, ServedResource]) -> None:
        known, definition = self._served.get(name), entry.obj
        if known is not None:
            if resources and known.uid == definition["metadata"].get("uid"):
                # Requests under way continue with what they have: nothing that exists may be reported as deleted.
                self.registry.renew(next(iter(resources.values())))
            else:
                self._forget(name)
        uid = definition["metadata"].get("uid", "")
        self._served[name] = Served(entry.revision, uid, _meaning(definition), resources)
        self._stopped.pop(name, None)

    async def _built(self, name: str, entry: Entry) -> Mapping[str, ServedResource]:
        size = max(len(entry.data), offload.YIELD_WEIGHT)
        try:
            return await offload.run(SERVER.name, size, self._build, name, entry)
        except StatusError as error:
            log.error("definition %s cannot be served: %s", name, error)
            return {}

    def _build(self, name: str, entry: Entry) -> Mapping[str, ServedResource]:
        """Compile a definition; one that cannot be (stored by a server that checked less) must not take others down.

        If that is stopped for holding the event loop too long, it is tried once more, where it may have a whole step.
        """
        # Schemas and rules are compiled by what a server without definitions need not load.
        from control.custom.building import build

        revision, times = self._stopped.get(name, (0, 0))
        if revision == entry.revision and times > 1:
            log.error("definition %s cannot be served: it takes too long to compile", name)
            return {}
        definition = entry.obj
        try:
            return build(definition, self.webhooks) if servable(definition) and holds(definition, "Established") else {}
        except Exception:
            log.exception("definition %s cannot be served", name)
            return {}
        except BaseException:
            self._stopped[name] = entry.revision, times + 1 if revision == entry.revision else 1
            raise

    def _forget(self, name: str) -> None:
        for resource in self._served.pop(name).resources.values():
            self.registry.drop(resource)

    async def serve(self, group: str, version: str, plural: str, verb: str) -> ServedResource | None:
        """Return a served version with its objects at hand, None if there is none; raises 405 (see `ready`)."""
        found = await self.find_prepared(group, version, plural)
        if found is None and "." in group:
            # Another server may have let it in a moment ago.
            await self.registry.cache.wait_current()
            found = await self.find_prepared(group, version, plural)
        if found is not None:
            await self.ready(found, verb)
        return found

    async def find_prepared(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return what `find` does, and compile its definition before if necessary."""
        name = f"{plural}.{group}"
        entry = self._cached.get(DEFINITIONS.key("", name))
        if entry is not None and not self._is_compiled(name, entry):
            await self._prepare(name, entry)
        return self.find(group, version, plural)

    # -- being ready ----------------------------------------------------------------------------------------------
    async def ready(self, resource: Resource, verb: str = "") -> None:
        """Wait until a resource's objects are in the watch cache; raises 405 for a create that comes too late."""
        if verb == "create" and self._terminating(resource):
            raise StatusError(
                405,
                "MethodNotAllowed",
                f"{verb} not allowed while custom resource definition is terminating",
                {"group": resource.group, "kind": resource.plural},
            )
        prefix = resource.storage_prefix
        if self.registry.loaded(resource):
            return
        lock = self._loading.setdefault(prefix, asyncio.Lock())
        async with lock:
            if not self.registry.loaded(resource):
                await self.registry.load(resource)
        self._loading.pop(prefix, None)

    def _terminating(self, resource: Resource) -> bool:
        entry = self._cached.get(DEFINITIONS.key("", resource.target))
        return entry is not None and readable(entry.obj) and holds(entry.obj, "Terminating")


def _meaning(definition: Object) -> bytes:
    """Return what a definition's compiled form follows from, nothing for an object that is none."""
    if not readable(definition):
        return b""
    status = definition.get("status") or {}
    parts = [definition["metadata"].get("uid"), definition["spec"], status.get("acceptedNames")]
    return msgspec.json.encode([*parts, holds(definition, "Established")])


def version_rank(version: str) -> tuple[int, int, int, int, str]:
    """Sort versions as upstream's CompareKubeAwareVersionStrings does, the most preferred first (v10 v2 v1 v3beta1 foo)."""
    with contextlib.suppress(ValueError):
        text = version.removeprefix("v")
        if text != version:
            for rank, word in ((1, "beta"), (2, "alpha")):
                major, found, minor = text.partition(word)
                if found and major.isdigit() and (minor == "" or minor.isdigit()):
                    return 0, rank, -int(major), -int(minor or 0), ""
            if text.isdigit():
                return 0, 0, -int(text), 0, ""
    return 1, 0, 0, 0, version
