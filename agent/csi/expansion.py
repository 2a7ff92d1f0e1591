"""Finishes a volume's expansion on the node: grows the file system to what the driver's controller expanded.

The control plane expanded the PersistentVolume beyond the capacity in its claim's status; the difference is left to the node.
Afterwards the claim's status gets the new capacity, and its conditions about the resize are removed (operation_generator.go:
NodeExpandVolume, MarkFSResizeFinished).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.csi import secrets
from agent.csi.volume import Volume
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.events import NORMAL, WARNING, EventRecorder
from kube.quantity import value

if TYPE_CHECKING:
    from agent.csi.driver import CSIClient
    from agent.volumes.claims import BoundClaim

_CONDITIONS = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")


class Expansion:
    """Has drivers expand larger volumes, and reports the result."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client, self._recorder = client, recorder

    async def possible(self, driver: CSIClient, persistent: core_v1.PersistentVolume) -> bool:
        """Return whether a driver expands volumes on the node."""
        from agent.csi.messages import Ability

        return await driver.can(Ability.EXPAND_VOLUME)

    async def finish(
        self, pod: core_v1.Pod, driver: CSIClient, volume: Volume, bound: BoundClaim, path: Path, staged: str
    ) -> None:
        """Have the driver finish an expansion; a failure is recorded as an event and retried later."""
        from agent.csi import request

        wanted = value(bound.persistent.spec.capacity.get("storage", 0))
        claim = bound.claim
        has = value(claim.status.capacity.get("storage", 0))
        if not has or wanted <= has:
            return
        step = "MapVolume.NodeExpandVolume" if volume.block else "MountVolume.NodeExpandVolume"
        try:
            secret = await secrets.read(self._client, volume.expand_secret)
            capability = request.capability(volume, tells_writers_apart=False)
            await driver.expand(volume.handle, str(path), wanted, capability, staged=staged, secrets=secret)
        except CRIError as error:
            text = f'{step} failed for volume "{volume.name}" requested {error.grpc_text()}'
            self._recorder.event(pod, WARNING, "VolumeResizeFailed", text)
            raise VolumeError(error.grpc_text(), step=step) from error
        await self._mark_done(bound)
        for about in (pod, claim):
            text = f'{step} succeeded for volume "{volume.name}"'
            self._recorder.event(about, NORMAL, "FileSystemResizeSuccessful", text)

    async def _mark_done(self, bound: BoundClaim) -> None:
        status = bound.claim.status
        removed: list[dict[str, Any]] = [
            {"$patch": "delete", "type": condition.type}
            for condition in status.conditions
            if condition.type in _CONDITIONS
        ]
        patch: dict[str, Any] = {
            "capacity": {"storage": bound.persistent.spec.capacity["storage"]},
            "allocatedResourceStatuses": {"storage": None},
        }
        if removed:
            patch["conditions"] = removed
        metadata = bound.claim.metadata
        await self._client.patch(
            core_v1.PersistentVolumeClaim,
            metadata.name or "",
            metadata.namespace or "",
            {"status": patch},
            type=STRATEGIC,
            subresource="status",
        )
