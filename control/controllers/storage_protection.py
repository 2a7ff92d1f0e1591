"""Protection of storage in use: a claim, volume or attributes class that is deleted stays until nobody uses it any more.

Admission (StorageObjectInUseProtection) gives each of them a finalizer when it is made; these controllers take it off once
the object is being deleted and its last user is gone. A cache that lags shows no user that is new, so the API server is asked
before the finalizer goes. Upstream: pkg/controller/volume/{pvc,pv,vac}protection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from control.controllers.context import Context
from kube.api import core_v1, storage_v1
from kube.client import key_of, namespace_of
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Informer, by_namespace

Used = Callable[[Any], bool]
RETRY_SECONDS = 30.0
"""After which an object is looked at again whose users the cache does not show."""
_WAITING = "waiting to go"
"""Name of the index of what is being deleted."""
CONFLICT_SECONDS = 1.0
"""After which an object is looked at again that changed while it was looked at."""


def used_claims(pods: Iterable[core_v1.Pod]) -> set[str]:
    """Return the names of claims that pods of one namespace use. One without a node will not start on a claim that is going."""
    found = set()
    for pod in pods:
        for volume in pod.spec.volumes if pod.spec.node_name else ():
            if volume.persistent_volume_claim is not None:
                found.add(volume.persistent_volume_claim.claim_name)
            if volume.ephemeral is not None:
                found.add(f"{pod.metadata.name}-{volume.name}")
    return found


def _waiting(obj: Any) -> Iterable[str]:
    """Index function: the namespace of what is being deleted."""
    return (namespace_of(obj),) if obj.metadata.deletion_timestamp else ()


class _Protection:
    """Takes `finalizer` off deleted objects of one kind that have no users. Objects of one group are looked at together.

    The cache's word that an object is in use keeps it; that it is not, is asked of the API server as well. The update names the
    revision of what was looked at, so an object that changed meanwhile is refused and looked at again.
    """

    def __init__(self, context: Context, kind: type[Any], finalizer: str) -> None:
        self._client, self._kind, self._finalizer = context.client, kind, finalizer
        self.objects: Informer[Any] = context.informers.of(kind)
        self.controller = Controller(f"{finalizer} finalizer", self.reconcile, workers=1, clock=context.clock)
        self.objects.add_index(_WAITING, _waiting)
        self.objects.subscribe(lambda change: self._look_at(change.new))

    def look(self, namespace: str) -> None:
        """Look at what waits to go in a namespace: one of the users went."""
        for obj in self.objects.by_index(_WAITING, namespace):
            self._look_at(obj)

    def _look_at(self, obj: Any) -> None:
        if obj.metadata.deletion_timestamp:
            self.controller.enqueue(self._group(obj))

    def _group(self, obj: Any) -> str:
        return key_of(obj)

    def _members(self, group: str) -> Iterable[Any]:
        obj = self.objects.get(group)
        return [obj] if obj is not None else []

    def _used(self, group: str) -> Used:
        """Return what tells of an object whether the cache shows a user."""
        raise NotImplementedError

    async def _used_now(self, group: str) -> Used:
        """Ask the API server for all users; return what tells of an object whether it has one."""
        raise NotImplementedError

    async def reconcile(self, group: str) -> float | None:
        used = self._used(group)
        unused = [obj for obj in self._members(group) if self._is_waiting(obj) and not used(obj)]
        if not unused:
            return None
        used_now = await self._used_now(group)
        again = None
        for obj in unused:
            if used_now(obj):
                # The cache may never show this user: it can be gone before a broken watch is back.
                again = RETRY_SECONDS
            else:
                await self._release(obj)
        return again

    def _is_waiting(self, obj: Any) -> bool:
        return bool(obj.metadata.deletion_timestamp) and self._finalizer in obj.metadata.finalizers

    async def _release(self, obj: Any) -> None:
        kept = [name for name in obj.metadata.finalizers if name != self._finalizer]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=kept)
        try:
            await self._client.update(msgspec.structs.replace(obj, metadata=metadata))
        except StatusError as error:
            if error.conflict:
                self.controller.enqueue_after(self._group(obj), CONFLICT_SECONDS)
            elif not error.not_found:
                raise

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()


class ClaimProtectionController(_Protection):
    """PersistentVolumeClaims stay while a pod uses them. Those of a namespace share one list of its pods."""

    def __init__(self, context: Context) -> None:
        self._pods = context.informers.of(core_v1.Pod)
        super().__init__(context, core_v1.PersistentVolumeClaim, "kubernetes.io/pvc-protection")
        self._pods.add_index("namespace", by_namespace)
        self._pods.subscribe(lambda change: self.look(namespace_of(change.new)) if change.type == "DELETED" else None)

    def _group(self, claim: core_v1.PersistentVolumeClaim) -> str:
        return claim.metadata.namespace or ""

    def _members(self, namespace: str) -> Iterable[core_v1.PersistentVolumeClaim]:
        return self.objects.by_index(_WAITING, namespace)

    def _used(self, namespace: str) -> Used:
        names = used_claims(self._pods.by_index("namespace", namespace))
        return lambda claim: claim.metadata.name in names

    async def _used_now(self, namespace: str) -> Used:
        names = used_claims((await self._client.list(core_v1.Pod, namespace)).items)
        return lambda claim: claim.metadata.name in names


class VolumeProtectionController(_Protection):
    """PersistentVolumes stay while they are bound to a claim.

    They say so themselves: the update is refused where one was bound since.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, core_v1.PersistentVolume, "kubernetes.io/pv-protection")

    def _used(self, name: str) -> Used:
        return lambda volume: volume.status.phase == "Bound"

    async def _used_now(self, name: str) -> Used:
        return self._used(name)


class AttributesClassProtectionController(_Protection):
    """VolumeAttributesClasses stay while a claim or volume names them."""

    def __init__(self, context: Context) -> None:
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        super().__init__(context, storage_v1.VolumeAttributesClass, "kubernetes.io/vac-protection")
        for users in (self._claims, self._volumes):
            users.subscribe(lambda change: self.look(""))

    def _used(self, name: str) -> Used:
        names = _named_classes(self._claims.list(), self._volumes.list())
        return lambda found: found.metadata.name in names

    async def _used_now(self, name: str) -> Used:
        claims = await self._client.list(core_v1.PersistentVolumeClaim)
        volumes = await self._client.list(core_v1.PersistentVolume)
        names = _named_classes(claims.items, volumes.items)
        return lambda found: found.metadata.name in names


def _named_classes(
    claims: Iterable[core_v1.PersistentVolumeClaim], volumes: Iterable[core_v1.PersistentVolume]
) -> set[str | None]:
    names = {volume.spec.volume_attributes_class_name for volume in volumes}
    for claim in claims:
        names |= {claim.spec.volume_attributes_class_name, claim.status.current_volume_attributes_class_name}
    return names
