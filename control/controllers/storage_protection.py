"""Protection of storage in use: a claim, volume or attributes class that is deleted stays until it is no longer used.

Admission (StorageObjectInUseProtection) gives each of them a finalizer when it is made; these controllers take it off once
the object is being deleted and its last user is gone. A cache that lags shows no user that is new, so the API server is asked
before the finalizer goes. In the cache users are indexed by what they use; of the server's answer, which is requested in pages,
nothing else is decoded. Upstream: pkg/controller/volume/{pvc,pv,vac}protection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from control.controllers.context import Context
from kube import resources
from kube.api import core_v1, storage_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.object_names import key_of, namespace_of
from kube.volume_binding import claim_names, named_claims

Used = Callable[[Any], bool]
RETRY_SECONDS = 30.0
"""After which an object is checked again whose users the cache does not show."""
_WAITING, _USED, _CLASS = "waiting to go", "used claims", "attributes class"
"""Names of indexes: of what is being deleted, of pods by their claims, of claims and volumes by their classes."""
CONFLICT_SECONDS = 1.0
"""After which an object is checked again that changed while it was looked at."""


class _Anything(msgspec.Struct):
    """An object of which nothing is read."""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class _ClaimSource(msgspec.Struct, rename="camel"):
    claim_name: str


class _PodVolume(msgspec.Struct, rename="camel"):
    name: str
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: _Anything | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    volumes: list[_PodVolume] = []


class _Pod(msgspec.Struct):
    """Fields of a pod that name the claims it uses."""

    metadata: _Metadata
    spec: _PodSpec


class _Change(msgspec.Struct, rename="camel"):
    target_volume_attributes_class_name: str | None = None


class _ClassNames(msgspec.Struct, rename="camel"):
    volume_attributes_class_name: str | None = None
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: _Change | None = None


class _Classed(msgspec.Struct):
    """Fields of a claim or a volume that name VolumeAttributesClasses."""

    spec: _ClassNames = msgspec.field(default_factory=_ClassNames)
    status: _ClassNames = msgspec.field(default_factory=_ClassNames)


def _used_claims(pod: Any) -> list[str]:
    """Return the names of claims that a pod uses. One without a node will not start on a claim that is going.

    A pod that is shut down no longer uses the claims of its ephemeral volumes: after a foreground deletion it waits for them.
    """
    if not pod.spec.node_name:
        return []
    return named_claims(pod) if _is_shut_down(pod) else claim_names(pod)


def _is_shut_down(pod: Any) -> bool:
    """Return whether a pod's volumes are unmounted and only finalizers keep it, or it was deleted by force."""
    return bool(pod.metadata.deletion_timestamp) and pod.metadata.deletion_grace_period_seconds == 0


def _used_keys(pod: core_v1.Pod) -> list[str]:
    """Index function: the keys of the claims that a pod uses."""
    return [f"{pod.metadata.namespace}/{name}" for name in _used_claims(pod)]


def _claim_classes(claim: Any) -> list[str]:
    """Return the attributes classes that a claim requests, has, or is being changed to."""
    change = claim.status.modify_volume_status
    names = {
        claim.spec.volume_attributes_class_name,
        claim.status.current_volume_attributes_class_name,
        change.target_volume_attributes_class_name if change is not None else None,
    }
    return [name for name in names if name]


def _volume_classes(volume: Any) -> list[str]:
    name = volume.spec.volume_attributes_class_name
    return [name] if name else []


def _waiting(obj: Any) -> Iterable[str]:
    """Index function: the namespace of what is being deleted."""
    return (namespace_of(obj),) if obj.metadata.deletion_timestamp else ()


class _Protection:
    """Takes `finalizer` off deleted objects of one kind that have no users. Objects of one group are looked at together.

    The cache's word that an object is in use keeps it; that it is not, is asked of the API server as well. The update names the
    revision of what was looked at, so an object that changed meanwhile is refused and checked again.
    """

    def __init__(self, context: Context, kind: type[Any], finalizer: str) -> None:
        self._client, self._kind, self._finalizer = context.client, kind, finalizer
        self.objects: Informer[Any] = context.informers.of(kind)
        queue = finalizer.rpartition("/")[2].replace("-", "")
        self.controller = Controller(
            f"{finalizer} finalizer", self.reconcile, workers=1, queue=queue, clock=context.clock
        )
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
        """Return a predicate: whether, for an object, the cache shows a user."""
        raise NotImplementedError

    async def _used_now(self, group: str, unused: Sequence[Any]) -> Used:
        """Ask the API server for the users of objects; return a predicate: whether one of these has any."""
        raise NotImplementedError

    async def reconcile(self, group: str) -> float | None:
        used = self._used(group)
        unused = [obj for obj in self._members(group) if self._is_waiting(obj) and not used(obj)]
        if not unused:
            return None
        used_now = await self._used_now(group, unused)
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
    """PersistentVolumeClaims stay while a pod uses them. Those of a namespace share a list of its pods."""

    def __init__(self, context: Context) -> None:
        self._pods = context.informers.of(core_v1.Pod)
        super().__init__(context, core_v1.PersistentVolumeClaim, "kubernetes.io/pvc-protection")
        self._pods.add_index(_USED, _used_keys)
        self._pods.subscribe(self._look_at_claims)

    def _look_at_claims(self, change: Change[core_v1.Pod]) -> None:
        if change.type == "DELETED" or _is_shut_down(change.new):
            self.look(namespace_of(change.new))

    def _group(self, claim: core_v1.PersistentVolumeClaim) -> str:
        return claim.metadata.namespace or ""

    def _members(self, namespace: str) -> Iterable[core_v1.PersistentVolumeClaim]:
        return self.objects.by_index(_WAITING, namespace)

    def _used(self, namespace: str) -> Used:
        return lambda claim: self._pods.has_index(_USED, key_of(claim))

    async def _used_now(self, namespace: str, unused: Sequence[Any]) -> Used:
        wanted, used = {claim.metadata.name for claim in unused}, set[str]()
        async for pod in self._client.each(resources.of(core_v1.Pod).path(namespace), _Pod):
            used |= wanted.intersection(_used_claims(pod))
        return lambda claim: claim.metadata.name in used


class VolumeProtectionController(_Protection):
    """PersistentVolumes stay while they are bound to a claim.

    They say so themselves: the update is refused where one was bound since.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, core_v1.PersistentVolume, "kubernetes.io/pv-protection")

    def _used(self, name: str) -> Used:
        return lambda volume: volume.status.phase == "Bound"

    async def _used_now(self, name: str, unused: Sequence[Any]) -> Used:
        return self._used(name)


class AttributesClassProtectionController(_Protection):
    """VolumeAttributesClasses stay while a claim or volume names them."""

    def __init__(self, context: Context) -> None:
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        super().__init__(context, storage_v1.VolumeAttributesClass, "kubernetes.io/vac-protection")
        self._claims.add_index(_CLASS, _claim_classes)
        self._volumes.add_index(_CLASS, _volume_classes)
        for users in (self._claims, self._volumes):
            users.subscribe(lambda change: self.look(""))

    def _used(self, name: str) -> Used:
        return lambda found: any(users.has_index(_CLASS, key_of(found)) for users in (self._claims, self._volumes))

    async def _used_now(self, name: str, unused: Sequence[Any]) -> Used:
        used = set[str]()
        kinds = ((core_v1.PersistentVolumeClaim, _claim_classes), (core_v1.PersistentVolume, _volume_classes))
        for kind, classes in kinds:
            async for user in self._client.each(resources.of(kind).path(), _Classed):
                used.update(classes(user))
        return lambda found: found.metadata.name in used
