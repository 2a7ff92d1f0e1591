"""Resource quotas: computes a namespace's usage of the resources that its quotas limit.

Admission charges new objects; this controller counts a namespace again when one of its quotas changes, when anything of it
goes, and every five minutes: once for all its quotas. Pods, Services and volume claims are followed, device claims are listed
in pages, and of everything else the server tells the number. Of a kind that cannot be listed the last number stays, and all
others are written. What an object costs is said in one place for both (control.admission.quota).
Upstream: pkg/controller/resourcequota.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from decimal import Decimal
from typing import Any

import msgspec

from control.admission import quota as quotas
from control.admission.quota_claims import DEVICES_OF_CLASS, attributes_classes
from control.controllers.batch_delay import BatchDelay
from control.controllers.context import Context
from control.controllers.discovery import METADATA_LIST, ONE_OBJECT_BYTES, DiscoveredResource, served
from control.controllers.quota_totals import Totals
from control.controllers.step_counter import StepCounter
from control.event_loop.pacing import TimeSlice
from kube import quantity, resources
from kube.api import core_v1, resource_v1
from kube.client import Client, answered
from kube.controller import Controller
from kube.errors import AnswerTooLong, StatusError, timeout
from kube.indexer import by_namespace
from kube.informer import Change, Informer
from kube.pod_requests import is_infeasible
from kube.volume_binding import CLASS_ANNOTATION

RESYNC_SECONDS = 300.0
SETTLE_SECONDS = 2.0
"""Seconds from a change to a further count of its namespace (`_settle`)."""
PAGE = 100
"""Objects listed at a time."""
COUNT_SECONDS = 60.0
"""Seconds for counting the objects of a resource: an extension server's list may have no end."""
_BARE_COUNTS = {"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}
"""Object counts that are named by the plural alone."""

_FINISHED = ("Succeeded", "Failed")
_BY_CLASS = ".storageclass.storage.k8s.io/"

_WHOLE = {
    "pods": frozenset({"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}),
    "services": frozenset({"services", "count/services", "services.loadbalancers", "services.nodeports"}),
    "persistentvolumeclaims": frozenset({"persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"}),
    "resourceclaims.resource.k8s.io": frozenset({"count/resourceclaims.resource.k8s.io"}),
}
"""Resources that objects use more of than a place, by what uses them."""


def target_of(name: str) -> str:
    """Return what uses a quota's resource, where that is more than a count: pods, services, claims; else ""."""
    for target, names in _WHOLE.items():
        if name in names:
            return target
    if _BY_CLASS in name:
        return "persistentvolumeclaims"
    if name.endswith(DEVICES_OF_CLASS):
        return "resourceclaims.resource.k8s.io"
    return "pods" if name.startswith(("requests.", "limits.", "hugepages-")) else ""


class ResourceQuotaController:
    """Follows quotas, pods, Services and volume claims."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._quotas = context.informers.of(core_v1.ResourceQuota)
        self._pods = context.informers.optional(core_v1.Pod)
        self._services = context.informers.optional(core_v1.Service)
        self._claims = context.informers.optional(core_v1.PersistentVolumeClaim)
        for informer in (self._pods, self._services, self._claims, self._quotas):
            informer.add_index("namespace", by_namespace)
        self._batch_delay = BatchDelay()
        self.controller = Controller(
            "resource quota", self.reconcile, workers=2, queue="resourcequota_primary", clock=context.clock
        )
        self._quotas.subscribe(self._quota_changed)
        self._pods.subscribe(self._pod_changed)
        self._services.subscribe(self._service_changed)
        self._claims.subscribe(self._claim_changed)
        context.on_departure("resourcequota", self._departed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _quota_changed(self, change: Change[core_v1.ResourceQuota]) -> None:
        # Admission charges before the object is stored: counting at that moment would take the charge back.
        if change.old is None or change.old.spec != change.new.spec:
            self.controller.enqueue(change.new.metadata.namespace or "")

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.type == "ADDED":
            self._settle(change.new.metadata.namespace or "")
            return
        if change.type == "DELETED" or (change.old is not None and _charge_changed(change.old, change.new)):
            self._recount(change.new.metadata.namespace or "")

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        if change.type != "ADDED":
            self._recount(change.new.metadata.namespace or "")

    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        """Count again where a claim's usage or scope changed: its status is written without admission's charge."""
        if change.old is None:
            self._settle(change.new.metadata.namespace or "")
        elif change.type == "DELETED" or _standing(change.old) != _standing(change.new):
            self._recount(change.new.metadata.namespace or "")

    def _departed(self, namespace: str) -> None:
        """Something of whatever kind is gone: give back its place, and count once more for what was charged meanwhile."""
        self._recount(namespace)
        self._settle(namespace)

    def _recount(self, namespace: str) -> None:
        if self._quotas.by_index("namespace", namespace):
            self.controller.enqueue_after(namespace, self._batch_delay.wait(namespace))

    def _settle(self, namespace: str) -> None:
        """Count once more: a count made between an object's charge and its being seen here was too low."""
        if self._quotas.by_index("namespace", namespace):
            self.controller.enqueue_after(namespace, SETTLE_SECONDS)

    async def reconcile(self, namespace: str) -> float | None:
        """Write the status of a namespace's quotas."""
        here = [q for q in self._quotas.by_index("namespace", namespace) if q.metadata.deletion_timestamp is None]
        if not here:
            self._batch_delay.forget(namespace)
            return None
        shapes = [msgspec.to_builtins(quota) for quota in here]
        failures: dict[str, StatusError] = {}
        totals = await self._totals(namespace, shapes, failures)
        # Nothing that is merely counted is within a scope.
        plain = [quota.spec.hard for quota, shape in zip(here, shapes, strict=True) if not quotas.scopes(shape)]
        names = sorted({name for hard in plain for name in hard})
        counts = await count_objects(self._client, namespace, names, failures)
        problems = []
        for quota, shape in zip(here, shapes, strict=True):
            failed = sorted(quota.spec.hard.keys() & failures.keys())
            problems += [failures[name] for name in failed]
            try:
                used = totals.of(shape) | ({} if quotas.scopes(shape) else counts)
                await self._write(quota, used, failed)
            except StatusError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return RESYNC_SECONDS

    async def _totals(self, namespace: str, shapes: list[dict[str, Any]], failures: dict[str, StatusError]) -> Totals:
        """Add up what is more than counted; note the failures of kinds that cannot be listed, by quota names."""
        totals, counter, number = Totals(shapes), StepCounter(), 0
        time_slice = TimeSlice()  # one large object may take longer than many small ones
        names = {name for shape in shapes for name in shape["spec"].get("hard", ())}
        for target in sorted({target_of(name) for name in names} - {""}):
            try:
                async for obj in self._objects(target, namespace):
                    await time_slice.step()
                    totals.add(target, _shape(obj))
                    number += 1
                    await counter.count(totals.steps)
            except StatusError as error:
                failures |= {name: error for name in names if target_of(name) == target}
        self._batch_delay.record(namespace, number)
        return totals

    async def _write(self, quota: core_v1.ResourceQuota, used: quotas.Usage, failed: Collection[str]) -> None:
        """Write a quota's status; the resources that could not be counted keep the number that they had, as upstream."""
        hard, before = quota.spec.hard, quota.status.used
        shown = quotas.render({name: used.get(name, Decimal(0)) for name in hard if name not in failed})
        shown |= {name: before[name] for name in failed if name in before}
        if quota.status.hard != hard or not _equal(quota.status.used, shown):
            status = core_v1.ResourceQuotaStatus(hard=hard, used=shown)
            await self._client.update_status(msgspec.structs.replace(quota, status=status))

    async def _objects(self, target: str, namespace: str) -> AsyncIterator[Any]:
        informers: dict[str, Informer[Any]] = {
            "pods": self._pods,
            "services": self._services,
            "persistentvolumeclaims": self._claims,
        }
        if target in informers:
            if not informers[target].synced:
                raise StatusError(503, "ServiceUnavailable", f"{target} cannot be listed yet")
            for obj in informers[target].by_index("namespace", namespace):
                yield obj
            return
        path = resources.of(resource_v1.ResourceClaim).path(namespace)
        async for obj in self._client.each(path, resource_v1.ResourceClaim):
            yield obj


def _shape(obj: Any) -> dict[str, Any]:
    """Return the JSON shape of an object as far as its usage depends on it: without labels, and a claim's selector."""
    annotations = {
        key: value for key in (CLASS_ANNOTATION,) if (value := obj.metadata.annotations.get(key)) is not None
    }
    metadata = msgspec.structs.replace(
        obj.metadata, labels={}, annotations=annotations, owner_references=[], finalizers=[]
    )
    obj = msgspec.structs.replace(obj, metadata=metadata)
    if isinstance(obj, core_v1.PersistentVolumeClaim):
        obj.spec = msgspec.structs.replace(obj.spec, selector=None)
    shape: dict[str, Any] = msgspec.to_builtins(obj)
    return shape


def _charge_changed(old: core_v1.Pod, new: core_v1.Pod) -> bool:
    """Return whether a pod finished, got or lost a deadline (its scope), or was resized. Upstream: DefaultUpdateFilter."""
    finished = new.status.phase in _FINISHED and old.status.phase not in _FINISHED
    rescoped = (old.spec.active_deadline_seconds is None) != (new.spec.active_deadline_seconds is None)
    return finished or rescoped or _resources(old) != _resources(new)


def _resources(pod: core_v1.Pod) -> tuple[object, ...]:
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    return (
        pod.spec.resources,
        [container.resources for container in (*pod.spec.init_containers, *pod.spec.containers)],
        [(status.allocated_resources, status.resources) for status in statuses],
        (pod.status.allocated_resources, pod.status.resources, is_infeasible(pod)),
    )


def _standing(claim: core_v1.PersistentVolumeClaim) -> tuple[object, ...]:
    return claim.status.allocated_resources, attributes_classes(_shape(claim))


def _equal(a: dict[str, str | int | float], b: dict[str, str | int | float]) -> bool:
    return a.keys() == b.keys() and all(quantity.parse(a[name]) == quantity.parse(b[name]) for name in a)


def _counted(name: str) -> tuple[str, str] | None:
    """Return (plural, group) of the objects that a quota name counts, None if it is not a plain count."""
    if _BY_CLASS in name:
        return None
    if name in _BARE_COUNTS:
        return name, ""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return plural, group
    return None


class _Number(msgspec.Struct):
    """A page of a list, as far as counting needs it."""

    items: list[msgspec.Raw] | None = None
    metadata: _Rest = msgspec.field(default_factory=lambda: _Rest())


class _Rest(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


async def count_objects(
    client: Client, namespace: str, quota_names: Iterable[str], failures: dict[str, StatusError]
) -> quotas.Usage:
    """Count the objects of a namespace that quota names such as "count/deployments.apps" mean; others are left out.

    What a kind that cannot be listed raises is recorded in `failures`, by quota name.
    """
    wanted = {name: counted for name in quota_names if not target_of(name) and (counted := _counted(name)) is not None}
    if not wanted:
        return {}
    resources, _ = await served(client)
    by_name = {(r.plural, r.group): r for r in resources if r.namespaced}
    numbers: dict[tuple[str, str], Decimal] = {}
    for counted in set(wanted.values()):
        resource = by_name.get(counted)
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                numbers[counted] = Decimal(await _number(client, resource, namespace) if resource is not None else 0)
        except TimeoutError:
            late = timeout(f"{'.'.join(counted)} could not be counted within {COUNT_SECONDS:g} seconds")
            failures |= {name: late for name, place in wanted.items() if place == counted}
        except StatusError as error:
            failures |= {name: error for name, place in wanted.items() if place == counted}
    return {name: numbers[counted] for name, counted in wanted.items() if counted in numbers}


async def _number(client: Client, resource: DiscoveredResource, namespace: str) -> int:
    """Request one object and the remaining count; if the server omits it, list metadata in pages."""
    found, query, path = 0, {"limit": "1"}, resource.path(namespace)
    limit: int | None = ONE_OBJECT_BYTES
    while True:
        try:
            data = await client.call("GET", path, query=query, accept=METADATA_LIST, most_bytes=limit)
            page = answered(data, _Number, path)
        except AnswerTooLong:
            if limit is None:
                raise
            query, limit = {"limit": str(PAGE)}, None  # the server ignores `limit`: the answer is the whole list
            continue
        except StatusError as error:
            if error.not_found:
                return 0
            raise
        found += len(page.items or ())
        if not page.metadata.continue_:
            return found
        if page.metadata.remaining_item_count is not None:
            return found + page.metadata.remaining_item_count
        query, limit = {"limit": str(PAGE), "continue": page.metadata.continue_}, None
