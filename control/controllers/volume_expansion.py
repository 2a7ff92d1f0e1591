"""Volume expansion: events and checks of the control plane for claims that request more than their capacity.

Growing a volume is its driver's affair (an external resizer's), so an event on the claim says that somebody else has
to act; upstream's own controller does nothing more for CSI volumes either (pkg/controller/volume/expand). Volumes of
the local-path provisioner are Wherry's own: a folder has no size, so volume and claim are given the wanted one.
"""

from __future__ import annotations

import msgspec

from control.controllers.context import Context
from control.controllers.local_path.plan import is_ours
from kube.api import core_v1
from kube.controller import Controller
from kube.informer import Change
from kube.quantity import value
from kube.volume_binding import is_bound


class VolumeExpansionController:
    """Follows claims."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("volume_expand")
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        self.controller = Controller(
            "volume expansion", self.reconcile, workers=2, queue="volume_expand", clock=context.clock
        )
        self._claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        if change.type != "DELETED" and is_bound(change.new) and wanted(change.new) > has(change.new) > 0:
            same = change.old is not None and is_bound(change.old) and wanted(change.old) == wanted(change.new)
            if not same or change.old is None or has(change.old) != has(change.new):
                self.controller.enqueue(change.key)

    async def reconcile(self, key: str) -> None:
        """See to one claim that wants more than it has."""
        claim = self._claims.get(key)
        if claim is None or claim.metadata.deletion_timestamp is not None or wanted(claim) <= has(claim):
            return
        volume = self._volumes.get(claim.spec.volume_name or "")
        if volume is None or volume.spec.claim_ref is None or volume.spec.claim_ref.uid != claim.metadata.uid:
            return
        if not is_ours(volume):
            text = "waiting for an external controller to expand this PVC"
            self._recorder.event(claim, "Normal", "ExternalExpanding", text)
            return
        assert claim.spec.resources is not None, "it wants something"
        size = {"storage": claim.spec.resources.requests["storage"]}
        if value(volume.spec.capacity.get("storage", 0)) < wanted(claim):
            spec = msgspec.structs.replace(volume.spec, capacity={**volume.spec.capacity, **size})
            await self._client.update(msgspec.structs.replace(volume, spec=spec))
        status = msgspec.structs.replace(claim.status, capacity={**claim.status.capacity, **size})
        await self._client.update_status(msgspec.structs.replace(claim, status=status))
        self._recorder.event(claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded")


def wanted(claim: core_v1.PersistentVolumeClaim) -> int:
    """Return how many bytes a claim requests."""
    return value(claim.spec.resources.requests.get("storage", 0)) if claim.spec.resources else 0


def has(claim: core_v1.PersistentVolumeClaim) -> int:
    """Return how many bytes a claim has."""
    return value(claim.status.capacity.get("storage", 0))
