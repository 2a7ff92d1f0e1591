"""Protection of storage in use: a claim, volume or attributes class that is deleted stays until nobody uses it any more.

Admission (StorageObjectInUseProtection) gives each of them a finalizer when it is made; these controllers take it off once
the object is being deleted and its last user is gone. Upstream: pkg/controller/volume/{pvc,pv,vac}protection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from control.controllers.context import Context
from kube.api import core_v1, storage_v1
from kube.client import key_of
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Informer


def uses_claim(pod: core_v1.Pod, claim: str) -> bool:
    """Tell whether a pod of the claim's namespace uses it. One without a node will not start on a claim that is going."""
    if not pod.spec.node_name:
        return False
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == claim:
            return True
        if volume.ephemeral is not None and f"{pod.metadata.name}-{volume.name}" == claim:
            return True
    return False


class _Protection:
    """Takes `finalizer` off the deleted objects of one kind that `used` does not hold."""

    def __init__(self, context: Context, kind: type[Any], finalizer: str, used: Callable[[Any], bool]) -> None:
        self._client, self._kind, self._finalizer, self._used = context.client, kind, finalizer, used
        self.objects: Informer[Any] = context.informers.of(kind)
        self.controller = Controller(f"{finalizer} finalizer", self.reconcile, workers=1, clock=context.clock)
        self.objects.subscribe(lambda change: self.controller.enqueue(change.key))

    def look(self) -> None:
        """Look at what waits to go: one of the users went."""
        for obj in self.objects.list():
            if obj.metadata.deletion_timestamp:
                self.controller.enqueue(key_of(obj))

    async def reconcile(self, key: str) -> None:
        obj = self.objects.get(key)
        if obj is None or not obj.metadata.deletion_timestamp or self._finalizer not in obj.metadata.finalizers:
            return
        if self._used(obj):
            return
        kept = [name for name in obj.metadata.finalizers if name != self._finalizer]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=kept)
        try:
            await self._client.update(msgspec.structs.replace(obj, metadata=metadata))
        except StatusError as error:
            if not error.not_found:
                raise

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()


class ClaimProtectionController(_Protection):
    """PersistentVolumeClaims stay while a pod uses them."""

    def __init__(self, context: Context) -> None:
        self._pods = context.informers.of(core_v1.Pod)
        super().__init__(context, core_v1.PersistentVolumeClaim, "kubernetes.io/pvc-protection", self._in_use)
        self._pods.subscribe(lambda change: self.look() if change.type == "DELETED" else None)

    def _in_use(self, claim: core_v1.PersistentVolumeClaim) -> bool:
        name, namespace = claim.metadata.name or "", claim.metadata.namespace
        return any(uses_claim(pod, name) for pod in self._pods.list() if pod.metadata.namespace == namespace)


class VolumeProtectionController(_Protection):
    """PersistentVolumes stay while they are bound to a claim."""

    def __init__(self, context: Context) -> None:
        super().__init__(
            context,
            core_v1.PersistentVolume,
            "kubernetes.io/pv-protection",
            lambda volume: volume.status.phase == "Bound",
        )


class AttributesClassProtectionController(_Protection):
    """VolumeAttributesClasses stay while a claim or volume names them."""

    def __init__(self, context: Context) -> None:
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        super().__init__(context, storage_v1.VolumeAttributesClass, "kubernetes.io/vac-protection", self._in_use)
        for users in (self._claims, self._volumes):
            users.subscribe(lambda change: self.look())

    def _in_use(self, found: storage_v1.VolumeAttributesClass) -> bool:
        for claim in self._claims.list():
            if found.metadata.name in (
                claim.spec.volume_attributes_class_name,
                claim.status.current_volume_attributes_class_name,
            ):
                return True
        return any(found.metadata.name == volume.spec.volume_attributes_class_name for volume in self._volumes.list())
