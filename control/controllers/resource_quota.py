"""Resource quotas: computes a namespace's usage of the resources that its quotas limit.

Admission charges new objects; this controller counts a namespace again when one of its quotas changes, when anything of it
goes, and every five minutes: once for all its quotas. Pods, Services and volume claims are followed, device claims are listed
in pages, and of everything else the server tells the number. Of a kind that cannot be listed the last number stays, and all
others are written. What an object costs is said in one place for both (control.admission.quota).
Upstream: pkg/controller/resourcequota.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from control.admission import quota as quotas
from control.admission.quota_claims import attributes_classes
from control.controllers.batch_delay import BatchDelay
from control.controllers.context import Context
from control.controllers.quota_counts import count_objects
from control.controllers.quota_names import target_of
from control.controllers.quota_totals import Totals
from control.controllers.step_counter import StepCounter
from control.event_loop.pacing import TimeSlice
from kube import quantity, resources
from kube.api import core_v1, resource_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.indexer import by_namespace
from kube.informer import Change, Informer
from kube.pod_requests import is_infeasible
from kube.volume_binding import CLASS_ANNOTATION

RESYNC_SECONDS = 300.0
SETTLE_SECONDS = 2.0
"""Seconds from a change to a further count of its namespace (`_settle`)."""
_ZERO = Decimal(0)
_FINISHED = ("Succeeded", "Failed")


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
            "resource quota", self.reconcile, workers=6, each=2, queue="resourcequota_primary", clock=context.clock
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
        shapes = [_without_names(quota) for quota in here]
        failures: dict[str, StatusError] = {}
        targets = await _targets(here)
        totals = await self._totals(namespace, shapes, targets, failures)
        # Nothing that is merely counted is within a scope.
        plain = [quota for quota, shape in zip(here, shapes, strict=True) if not quotas.scopes(shape)]
        counted = targets if len(plain) == len(here) else await _targets(plain)
        counts = await count_objects(self._client, namespace, counted, failures)
        problems = []
        for quota, shape in zip(here, shapes, strict=True):
            failed = failures.keys() & quota.spec.hard.keys() if failures else frozenset[str]()
            problems += [failures[name] for name in failed]
            try:
                used = totals.of(shape) | ({} if quotas.scopes(shape) else counts)
                await self._write(quota, used, failed)
            except StatusError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return RESYNC_SECONDS

    async def _totals(
        self, namespace: str, shapes: list[dict[str, Any]], targets: Mapping[str, str], failures: dict[str, StatusError]
    ) -> Totals:
        """Add up what is more than counted; note the failures of kinds that cannot be listed, by quota names."""
        totals, counter, number = Totals(shapes), StepCounter(), 0
        time_slice = TimeSlice()  # one large object may take longer than many small ones
        for target in sorted({*targets.values()} - {""}):
            try:
                async for obj in self._objects(target, namespace):
                    await time_slice.step()
                    totals.add(target, _shape(obj))
                    number += 1
                    await counter.count(totals.steps)
            except StatusError as error:
                failures |= {name: error for name, needed in targets.items() if needed == target}
        self._batch_delay.record(namespace, number)
        return totals

    async def _write(self, quota: core_v1.ResourceQuota, used: quotas.Usage, failed: Collection[str]) -> None:
        """Write a quota's status; the resources that could not be counted keep the number that they had, as upstream."""
        hard, before = quota.spec.hard, quota.status.used
        shown = {name: before[name] for name in failed if name in before}
        equal, time_slice = quota.status.hard == hard, TimeSlice()
        for name in hard:
            if time_slice.over():
                await time_slice.turn()
            if name not in failed:
                number = used.get(name, _ZERO)
                shown |= quotas.render({name: number})
                equal = equal and name in before and quantity.parse(before[name]) == number
        if not equal or shown.keys() != before.keys():
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


def _without_names(quota: core_v1.ResourceQuota) -> dict[str, Any]:
    """Return the JSON shape of a quota without its resources, which may be tens of thousands."""
    spec, status = msgspec.structs.replace(quota.spec, hard={}), core_v1.ResourceQuotaStatus()
    shape: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(quota, spec=spec, status=status))
    return shape


async def _targets(here: Iterable[core_v1.ResourceQuota]) -> dict[str, str]:
    """Return `target_of` each resource that some quotas limit, in steps."""
    targets, time_slice = dict[str, str](), TimeSlice()
    for quota in here:
        for name in quota.spec.hard:
            if time_slice.over():
                await time_slice.turn()
            if name not in targets:
                targets[name] = target_of(name)
    return targets


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
