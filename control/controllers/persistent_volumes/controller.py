"""PersistentVolume binder: claims get volumes, volumes follow their claims.

A binding is written in four steps (volume, its status, claim, its status), each of which can be taken up again by the next
reconcile. A claim whose class waits for a pod is left to the scheduler. Upstream: pkg/controller/volume/persistentvolume.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from control.controllers.context import Context
from control.controllers.persistent_volumes.claim_status import bound_status, lost_status
from control.controllers.persistent_volumes.default_class import default_class
from control.controllers.persistent_volumes.first_consumers import unplaced, waits_for
from control.controllers.persistent_volumes.matching import find_match
from control.controllers.persistent_volumes.unbinding import is_superfluous, unbound
from kube import cancellation
from kube.api import core_v1, storage_v1
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of
from kube.volume_binding import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLASS_ANNOTATION,
    NO_PROVISIONER,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    claim_reference,
    class_of,
    is_bound,
    meant_for,
    mismatch,
    other_mode,
    waits_for_pod,
)

RESYNC_SECONDS, UNPLACED = 15.0, "unplaced-claim"
"""Interval between events about what a claim waits for; the index of pods without a node by their claims."""
Claim, Volume = core_v1.PersistentVolumeClaim, core_v1.PersistentVolume

MIGRATED_TO = "pv.kubernetes.io/migrated-to"
"""Annotation of a volume whose CSI driver took it over from a part of Kubernetes."""


class PersistentVolumeController:
    """Follows claims, volumes and storage classes."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("persistentvolume-controller")
        self._claims = context.informers.of(Claim)
        self._volumes = context.informers.of(Volume)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index(UNPLACED, unplaced)
        self._classes = context.informers.of(storage_v1.StorageClass)
        self.claims = Controller("claim binder", self.reconcile_claim, workers=1, queue="claims", clock=self._clock)
        self.volumes = Controller("volume binder", self.reconcile_volume, workers=2, queue="volumes", clock=self._clock)
        self._claims.subscribe(self._claim_changed)
        self._volumes.subscribe(self._volume_changed)
        self._classes.subscribe(lambda change: self._wake_unbound())

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self.claims.run, "claim binder")
            cancellation.start(group, self.volumes.run, "volume binder")

    # -- events -----------------------------------------------------------------------------------------------------
    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        self.claims.enqueue(change.key)
        if change.new.spec.volume_name:
            self.volumes.enqueue(change.new.spec.volume_name)

    def _volume_changed(self, change: Change[core_v1.PersistentVolume]) -> None:
        self.volumes.enqueue(change.key)
        ref = change.new.spec.claim_ref
        if ref is not None:
            self.claims.enqueue(f"{ref.namespace}/{ref.name}")
        elif change.type != "DELETED":
            self._wake_unbound()

    def _wake_unbound(self) -> None:
        for claim in self._claims.list():
            if not is_bound(claim):
                self.claims.enqueue(key_of(claim))

    # -- claims -----------------------------------------------------------------------------------------------------
    async def reconcile_claim(self, key: str) -> float | None:
        """Bind one claim, if there is a volume for it."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        named = self._volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if BIND_COMPLETED in claim.metadata.annotations and (
            claim.status.phase not in (None, "Pending") or _claimed(named)
        ):
            # A volume without a claim may be an old state of the cache: bind it again. The author of a claim that was never
            # bound may have written the annotation, which replaces no comparison with the volume.
            if named is not None and named.spec.claim_ref is None and not claim.status.capacity:
                await self._bind_matching(claim, named)
            elif named is not None and (named.spec.claim_ref is None or meant_for(named, claim)):
                await self._bind(claim, named)
            else:
                await self._lose(claim, named)
            return None
        if claim.metadata.deletion_timestamp is not None:
            return None
        if claim.spec.volume_name:
            if named is not None and named.spec.claim_ref is None:
                await self._bind_matching(claim, named)
            elif named is not None and meant_for(named, claim):
                await self._bind(claim, named)
            elif named is not None:
                text = f'volume "{name_of(named)}" already bound to a different claim.'
                self._recorder.event(claim, "Warning", "FailedBinding", text)
            return None
        if claim.spec.storage_class_name is None and CLASS_ANNOTATION not in claim.metadata.annotations:
            if (name := default_class(self._classes.list())) is not None:
                # It was made before there was a default class; its change brings us back.
                spec = msgspec.structs.replace(claim.spec, storage_class_name=name)
                await self._client.update(msgspec.structs.replace(claim, spec=spec))
                return None
        storage_class = self._classes.get(class_of(claim)) if class_of(claim) else None
        waits = waits_for_pod(storage_class)
        match = await find_match(claim, self._volumes.list(), only_named=waits)
        if waits and match is None:
            if SELECTED_NODE not in claim.metadata.annotations:
                self._recorder.event(claim, "Normal", *waits_for(self._pods.by_index(UNPLACED, key)))
                return RESYNC_SECONDS
            await self._ask_provisioner(claim, storage_class)
            return None
        if match is not None:
            await self._bind(claim, match)
        else:
            await self._ask_provisioner(claim, storage_class)
        return None

    async def _ask_provisioner(
        self, claim: core_v1.PersistentVolumeClaim, storage_class: storage_v1.StorageClass | None
    ) -> None:
        """No volume fits: leave the claim to its class's provisioner, or emit an event if there is none."""
        if storage_class is None or storage_class.provisioner == NO_PROVISIONER:
            text = "no persistent volumes available for this claim and no storage class is set"
            if class_of(claim):
                text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
                if storage_class is not None:
                    text = "no volume plugin matched name: " + NO_PROVISIONER
            warning = bool(class_of(claim))
            self._recorder.event(
                claim,
                "Warning" if warning else "Normal",
                "ProvisioningFailed" if warning else "FailedBinding",
                text,
            )
            return
        provisioner = storage_class.provisioner
        if claim.metadata.annotations.get(PROVISIONER) != provisioner:
            annotations = {**claim.metadata.annotations, PROVISIONER: provisioner}
            metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
            claim = await self._client.update(msgspec.structs.replace(claim, metadata=metadata))
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._recorder.event(claim, "Normal", "ExternalProvisioning", text)

    async def _bind_matching(self, claim: core_v1.PersistentVolumeClaim, volume: core_v1.PersistentVolume) -> None:
        """Bind a claim to the volume that it names, if the volume has what the claim requests."""
        if why := mismatch(volume, claim):
            text = f'Cannot bind to requested volume "{name_of(volume)}": {why}'
            self._recorder.event(claim, "Warning", "VolumeMismatch", text)
        else:
            await self._bind(claim, volume)

    async def _bind(self, claim: core_v1.PersistentVolumeClaim, volume: core_v1.PersistentVolume) -> None:
        """Write what is missing of a binding, in order."""
        ref = volume.spec.claim_ref
        if ref is None or ref.uid != claim.metadata.uid:
            metadata = volume.metadata if ref is not None else _annotated(volume.metadata, BOUND_BY_CONTROLLER)
            spec = msgspec.structs.replace(volume.spec, claim_ref=claim_reference(claim))
            volume = await self._client.update(msgspec.structs.replace(volume, metadata=metadata, spec=spec))
        await self._set_phase(volume, "Bound")
        if claim.spec.volume_name != volume.metadata.name or BIND_COMPLETED not in claim.metadata.annotations:
            metadata = _annotated(claim.metadata, BIND_COMPLETED)
            if claim.spec.volume_name != volume.metadata.name:
                metadata = _annotated(metadata, BOUND_BY_CONTROLLER)
            spec_ = msgspec.structs.replace(claim.spec, volume_name=volume.metadata.name)
            claim = await self._client.update(msgspec.structs.replace(claim, metadata=metadata, spec=spec_))
        if (status := bound_status(claim.status, volume)) != claim.status:
            await self._client.update_status(msgspec.structs.replace(claim, status=status))

    async def _lose(self, claim: core_v1.PersistentVolumeClaim, volume: core_v1.PersistentVolume | None) -> None:
        if claim.status.phase == "Lost":
            return
        what = "its PersistentVolume" if claim.spec.volume_name else "reference to PersistentVolume"
        reason, text = "ClaimLost", f"Bound claim has lost {what}. Data on the volume is lost!"
        if volume is not None:
            reason, text = "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"
        status = lost_status(claim.status)
        await self._client.update_status(msgspec.structs.replace(claim, status=status))
        self._recorder.event(claim, "Warning", reason, text)

    # -- volumes ----------------------------------------------------------------------------------------------------
    async def reconcile_volume(self, key: str) -> None:
        """Reconcile the phase of one volume with its claim."""
        volume = self._volumes.get(key)
        if volume is None:
            return
        ref = volume.spec.claim_ref
        if ref is None:
            await self._set_phase(volume, "Available")
            return
        if not ref.uid:
            await self._set_phase(volume, "Available")
            self.claims.enqueue(f"{ref.namespace}/{ref.name}")
            return
        claim = await self._claim(ref)
        if claim is None:
            if volume.status.phase != "Failed":
                await self._set_phase(volume, "Released")
            await self._reclaim(volume)
        elif claim.spec.volume_name == name_of(volume):
            await self._set_phase(volume, "Bound")
        elif not claim.spec.volume_name:
            if other_mode(volume, claim):
                self._tell_of_modes(volume, claim)
            self.claims.enqueue(key_of(claim))
        elif is_superfluous(volume):
            if volume.status.phase != "Failed":
                await self._set_phase(volume, "Released")
            await self._reclaim(volume)
        else:
            await self._client.update(unbound(volume))

    def _tell_of_modes(self, volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> None:
        """A volume was created for a claim and does not fit it: events report it, and both wait."""
        why = "due to incompatible volumeMode."
        text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{name_of(claim)}" {why}'
        self._recorder.event(volume, "Warning", "VolumeMismatch", text)
        text = f'Cannot bind PersistentVolume "{name_of(volume)}" to requested PersistentVolumeClaim {why}'
        self._recorder.event(claim, "Warning", "VolumeMismatch", text)

    async def _claim(self, ref: core_v1.ObjectReference) -> core_v1.PersistentVolumeClaim | None:
        """Return the claim that a volume names, asking live before it counts as gone."""
        found = self._claims.get(f"{ref.namespace}/{ref.name}")
        if found is None or found.metadata.uid != ref.uid:
            try:
                found = await self._client.get(Claim, ref.name or "", ref.namespace or "")
            except StatusError as error:
                if not error.not_found:
                    raise
                return None
        return found if found.metadata.uid == ref.uid else None

    async def _reclaim(self, volume: core_v1.PersistentVolume) -> None:
        """Report that a manually created volume cannot be removed.

        A provisioner removes its own volumes, and all of its CSI driver (pv_controller.go: findDeletablePlugin).
        """
        policy, annotations = volume.spec.persistent_volume_reclaim_policy, volume.metadata.annotations
        if volume.status.phase != "Released" or PROVISIONED_BY in annotations or annotations.get(MIGRATED_TO):
            return
        if policy == "Delete" and volume.spec.csi is not None:
            return
        if policy == "Recycle":
            reason, text = "VolumeFailedRecycle", "No recycler plugin found for the volume!"
        elif policy == "Delete":
            what = f'error getting deleter volume plugin for volume "{name_of(volume)}"'
            reason, text = "VolumeFailedDelete", f"{what}: no deletable volume plugin matched"
        else:
            return
        await self._set_phase(volume, "Failed", reason, text)
        self._recorder.event(volume, "Warning", reason, text)

    async def _set_phase(
        self, volume: core_v1.PersistentVolume, phase: str, reason: str | None = None, message: str | None = None
    ) -> None:
        if volume.status.phase == phase:
            return
        now = format_time(self._clock.now())
        status = msgspec.structs.replace(
            volume.status, phase=phase, reason=reason, message=message, last_phase_transition_time=now
        )
        await self._client.update_status(msgspec.structs.replace(volume, status=status))


def _annotated(metadata: Any, name: str) -> Any:
    return msgspec.structs.replace(metadata, annotations={**metadata.annotations, name: "yes"})


def _claimed(volume: core_v1.PersistentVolume | None) -> bool:
    return volume is None or volume.spec.claim_ref is not None
