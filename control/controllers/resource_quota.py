"""Resource quotas: what a namespace uses of what its quotas count.

Admission charges new objects; this controller counts anew when a quota changes, when anything of its namespace goes, and
every five minutes. What an object costs is said in one place for both (control.admission.quota).
Upstream: pkg/controller/resourcequota.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from control.admission import quota as quotas
from control.admission.quota_claims import DEVICES_OF_CLASS, attributes_classes
from control.controllers.context import Context
from control.controllers.discovery import Served, served
from kube import quantity
from kube.api import core_v1, resource_v1
from kube.client import Client, key_of
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, by_namespace

RESYNC_SECONDS = 300.0
SETTLE_SECONDS = 2.0
"""How long after a pod appears its namespace is counted again."""
_BARE_COUNTS = {"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}
"""Object counts that are named by the plural alone."""

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
        self._pods = context.informers.of(core_v1.Pod)
        self._services = context.informers.of(core_v1.Service)
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        for informer in (self._pods, self._services, self._quotas):
            informer.add_index("namespace", by_namespace)
        self.controller = Controller("resource quota", self.reconcile, workers=2, clock=context.clock)
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
            self.controller.enqueue(change.key)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.type == "ADDED":
            # A count made between a pod's charge and its being seen here was too low; this one will not be.
            for quota in self._quotas.by_index("namespace", change.new.metadata.namespace or ""):
                self.controller.enqueue_after(key_of(quota), SETTLE_SECONDS)
            return
        done = change.new.status.phase in ("Succeeded", "Failed")
        was_done = change.old is not None and change.old.status.phase in ("Succeeded", "Failed")
        if change.type == "DELETED" or (done and not was_done):
            self._recount(change.new.metadata.namespace or "")

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        if change.type != "ADDED":
            self._recount(change.new.metadata.namespace or "")

    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        """Count anew where a claim's usage or scope changed: its status is written without admission's charge."""
        if change.old is not None and _standing(change.old) != _standing(change.new):
            self._recount(change.new.metadata.namespace or "")

    def _departed(self, namespace: str) -> None:
        """Something of whatever kind is gone: give back its place, and count once more for what was charged meanwhile."""
        self._recount(namespace)
        for quota in self._quotas.by_index("namespace", namespace):
            self.controller.enqueue_after(key_of(quota), SETTLE_SECONDS)

    def _recount(self, namespace: str) -> None:
        for quota in self._quotas.by_index("namespace", namespace):
            self.controller.enqueue(key_of(quota))

    async def reconcile(self, key: str) -> float | None:
        """Write the status of one quota."""
        quota = self._quotas.get(key)
        if quota is None or quota.metadata.deletion_timestamp is not None:
            return None
        hard = quota.spec.hard
        namespace = quota.metadata.namespace or ""
        used: quotas.Usage = {}
        shape = msgspec.to_builtins(quota)
        for target in sorted({target_of(name) for name in hard} - {""}):
            found = map(msgspec.to_builtins, await self._objects(target, namespace))
            used |= quotas.add_up(shape, target, found)
        scoped = bool(quotas.scopes(shape))  # nothing that is merely counted is within a scope
        others = [name for name in hard if not scoped and not target_of(name) and _counted(name) is not None]
        counts = await count_objects(self._client, namespace, others)
        used.update({name: Decimal(number) for name, number in counts.items()})
        shown = quotas.render({name: used.get(name, Decimal(0)) for name in hard})
        if quota.status.hard != hard or not _equal(quota.status.used, shown):
            status = core_v1.ResourceQuotaStatus(hard=hard, used=shown)
            await self._client.update_status(msgspec.structs.replace(quota, status=status))
        return RESYNC_SECONDS

    async def _objects(self, target: str, namespace: str) -> Sequence[Any]:
        if target == "pods":
            return self._pods.by_index("namespace", namespace)
        if target == "services":
            return self._services.by_index("namespace", namespace)
        if target == "persistentvolumeclaims":
            return (await self._client.list(core_v1.PersistentVolumeClaim, namespace)).items
        return (await self._client.list(resource_v1.ResourceClaim, namespace)).items


def _standing(claim: core_v1.PersistentVolumeClaim) -> tuple[object, ...]:
    return claim.status.allocated_resources, attributes_classes(msgspec.to_builtins(claim))


def _equal(a: dict[str, str | int | float], b: dict[str, str | int | float]) -> bool:
    return a.keys() == b.keys() and all(quantity.parse(a[name]) == quantity.parse(b[name]) for name in a)


def _counted(name: str) -> tuple[str, str] | None:
    """Return (plural, group) of the objects that a quota name counts, None where it is not a plain count."""
    if _BY_CLASS in name:
        return None
    if name in _BARE_COUNTS:
        return name, ""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return plural, group
    return None


async def count_objects(client: Client, namespace: str, quota_names: list[str]) -> dict[str, int]:
    """Count the objects of a namespace that quota names such as "count/deployments.apps" mean."""
    if not quota_names:
        return {}
    resources, _ = await served(client)
    by_name: dict[tuple[str, str], Served] = {(r.plural, r.group): r for r in resources if r.namespaced}

    async def one(name: str) -> tuple[str, int]:
        resource = by_name.get(_counted(name) or ("", ""))
        if resource is None:
            return name, 0
        try:
            data = await client.call("GET", resource.path(namespace))
        except StatusError as error:
            if error.not_found:
                return name, 0
            raise
        return name, len(msgspec.json.decode(data).get("items") or ())

    return dict(await asyncio.gather(*(one(name) for name in quota_names)))
