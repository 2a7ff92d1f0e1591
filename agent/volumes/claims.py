"""Reads a pod's claim and the PersistentVolume that it is bound to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.client import Client
from kube.errors import StatusError

PROTECTION = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a claim while a pod uses it."""
GROUP_ANNOTATION = "pv.beta.kubernetes.io/gid"
"""Annotation of a PersistentVolume: a supplemental group of processes that use it (volumeutil.VolumeGidAnnotationKey)."""
MOST_GROUP_ID = (1 << 31) - 1
"""Largest ID of a group (validation.IsValidGroupID)."""
_DECIMAL = re.compile(r"\+?0*([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """A claim with its volume."""

    claim: core_v1.PersistentVolumeClaim
    persistent: core_v1.PersistentVolume

    @property
    def group(self) -> int | None:
        """The group in the volume's annotation; None without a valid one, which is ignored, as upstream."""
        found = _DECIMAL.fullmatch(self.persistent.metadata.annotations.get(GROUP_ANNOTATION, ""))
        group = int(found[1]) if found else None
        return group if group is not None and group <= MOST_GROUP_ID else None


def claim_of(pod: core_v1.Pod, volume: core_v1.Volume) -> tuple[str, str] | None:
    """Return namespace and name of the claim behind a pod's volume, also of one made for it; None if there is none."""
    namespace = pod.metadata.namespace or ""
    if volume.persistent_volume_claim is not None:
        return namespace, volume.persistent_volume_claim.claim_name
    return (namespace, f"{pod.metadata.name}-{volume.name}") if volume.ephemeral is not None else None


class ClaimReader:
    """Reads claims and what they are bound to, always as they are now: a node may not watch them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, pod: core_v1.Pod, volume: core_v1.Volume) -> BoundClaim:
        """Return what a persistentVolumeClaim or ephemeral volume stands for. Raise VolumeError.

        A claim that is being deleted and has lost its protection is refused: whoever took that off counts on no pod starting
        with it (pkg/kubelet/volumemanager/populator: getPVCExtractPV).
        """
        reference = claim_of(pod, volume)
        assert reference is not None, volume.name
        namespace, name = reference
        try:
            claim = await self._client.get(core_v1.PersistentVolumeClaim, name, namespace)
            if volume.ephemeral is not None and _controller_uid(claim) != pod.metadata.uid:
                raise VolumeError(
                    f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.metadata.name} (pod is not owner)"
                )
            if claim.metadata.deletion_timestamp and PROTECTION not in claim.metadata.finalizers:
                raise VolumeError(f"error processing PVC {namespace}/{name}: PVC is being deleted")
            if claim.status.phase != "Bound" or not claim.spec.volume_name:
                raise VolumeError(f'PVC "{namespace}/{name}" is not bound')
            persistent = await self._client.get(core_v1.PersistentVolume, claim.spec.volume_name)
        except StatusError as error:
            raise VolumeError(f"error processing PVC {namespace}/{name}: {error}") from error
        owner = persistent.spec.claim_ref
        if owner is None or owner.uid != claim.metadata.uid:
            raise VolumeError(f'PV "{claim.spec.volume_name}" is bound to another claim')
        return BoundClaim(claim, persistent)


def _controller_uid(claim: core_v1.PersistentVolumeClaim) -> str | None:
    return next((each.uid for each in claim.metadata.owner_references if each.controller), None)
