"""Finishes a volume's expansion on the node: the file system grows to the size of the expanded volume.

The control plane expanded the PersistentVolume beyond the capacity in its claim's status; the difference is left to the node.
`status.allocatedResourceStatuses` says whose turn it is: the node begins where its resize is pending, and an error after which
the claim must ask for less is recorded there, so that the controller can go on with the new request. Afterwards the claim's
status gets the new capacity, and its conditions about the resize are removed (node_expander.go, resize_util.go).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agent.volumes.claims import BoundClaim
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_time
from kube.errors import StatusError
from kube.events import NORMAL, WARNING, EventRecorder
from kube.quantity import value

Quantity = str | int | float
_CONDITIONS = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")
_FAILED = "NodeResizeError"
_IN_PROGRESS, _INFEASIBLE = "NodeResizeInProgress", "NodeResizeInfeasible"
_ALLOWED = ("NodeResizePending", _IN_PROGRESS)
_NEVER_POSSIBLE = ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND")
"""Codes of errors that a retry with the same size does not help."""
MOST_REFUSED = 1024
"""Volumes whose refused sizes are kept."""
_NOT_IN_USE = "FAILED_PRECONDITION"
"""Code of a driver that does not expand a volume in use."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A volume that is expanded; `unique_name` contains its plugin."""

    name: str
    unique_name: str
    block: bool
    read_only: bool


class Expansion:
    """Expands volumes on the node, and reports the result."""

    def __init__(self, client: Client, recorder: EventRecorder, *, clock: Clock) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._failed: set[str] = set()
        """Unique names of volumes whose last expansion failed."""
        self._refused: dict[str, int] = {}
        """Sizes to which volumes that are mounted read-only were not expanded, which is reported once."""

    async def finish(
        self, expand: Callable[[int], Awaitable[None]], pod: core_v1.Pod, volume: Expanded, bound: BoundClaim
    ) -> None:
        """Finish an expansion by a call of `expand` with the size in bytes, which raises CRIError or VolumeError.

        A failure is recorded, raised as VolumeError and retried later.
        """
        try:
            await self._finish(expand, pod, volume, bound)
        except StatusError as error:
            raise VolumeError(f'the expansion of volume "{volume.name}" cannot be recorded: {error}') from error

    async def _finish(
        self, expand: Callable[[int], Awaitable[None]], pod: core_v1.Pod, volume: Expanded, bound: BoundClaim
    ) -> None:
        claim, wanted = bound.claim, bound.persistent.spec.capacity.get("storage", 0)
        has = value(claim.status.capacity.get("storage", 0))
        if not has or value(wanted) <= has:
            return
        step = "MapVolume.NodeExpandVolume" if volume.block else "MountVolume.NodeExpandVolume"
        if volume.read_only:
            if self._refused.get(volume.unique_name) != value(wanted):
                if len(self._refused) >= MOST_REFUSED:
                    self._refused.clear()
                self._refused[volume.unique_name] = value(wanted)
                for about in (pod, claim):
                    text = f'{step} failed for volume "{volume.name}" requested read-only file system'
                    self._recorder.event(about, WARNING, "FileSystemResizeFailed", text)
            return
        recoverable = bool(claim.status.allocated_resources or claim.status.allocated_resource_statuses)
        if recoverable:
            if claim.status.allocated_resource_statuses.get("storage") not in _ALLOWED:
                return
            wanted = claim.status.allocated_resources.get("storage", wanted)
            if claim.status.allocated_resource_statuses["storage"] != _IN_PROGRESS:
                claim = await self._patch(claim, {"allocatedResourceStatuses": {"storage": _IN_PROGRESS}})
        try:
            await expand(value(wanted))
        except (CRIError, VolumeError) as error:
            code, why = (error.code, error.grpc_text()) if isinstance(error, CRIError) else ("", str(error))
            if recoverable:
                await self._mark_failed(claim, volume, wanted, code, why)
            self._recorder.event(
                pod, WARNING, "VolumeResizeFailed", f'{step} failed for volume "{volume.name}" : {why}'
            )
            if code == _NOT_IN_USE:
                return
            raise VolumeError(why, step=step) from error
        self._failed.discard(volume.unique_name)
        await self._mark_done(claim, wanted)
        for about in (pod, claim):
            text = f'{step} succeeded for volume "{volume.name}"'
            self._recorder.event(about, NORMAL, "FileSystemResizeSuccessful", text)

    async def _mark_failed(
        self, claim: core_v1.PersistentVolumeClaim, volume: Expanded, tried: Quantity, code: str, why: str
    ) -> None:
        """Record a failure in the claim: whether the controller has to act, and a condition.

        If the claim asks for another size by now, the second failure leaves it to the controller, too.
        """
        asked = claim.spec.resources.requests.get("storage", 0) if claim.spec.resources else 0
        other = value(asked) != value(tried)
        patch: dict[str, Any] = {}
        if code in _NEVER_POSSIBLE or (other and volume.unique_name in self._failed):
            patch["allocatedResourceStatuses"] = {"storage": _INFEASIBLE}
        self._failed.add(volume.unique_name)
        if not any(c.type == _FAILED and c.status == "True" for c in claim.status.conditions):
            text = f"failed to expand pvc with {why}"
            time = format_time(self._clock.now())
            patch["conditions"] = [{"type": _FAILED, "status": "True", "lastTransitionTime": time, "message": text}]
        if patch:
            await self._patch(claim, patch)

    async def _mark_done(self, claim: core_v1.PersistentVolumeClaim, size: Quantity) -> None:
        patch: dict[str, Any] = {"capacity": {"storage": size}, "allocatedResourceStatuses": {"storage": None}}
        removed = [{"$patch": "delete", "type": c.type} for c in claim.status.conditions if c.type in _CONDITIONS]
        if removed:
            patch["conditions"] = removed
        await self._patch(claim, patch)

    async def _patch(
        self, claim: core_v1.PersistentVolumeClaim, status: dict[str, Any]
    ) -> core_v1.PersistentVolumeClaim:
        return await self._client.patch(
            core_v1.PersistentVolumeClaim,
            claim.metadata.name or "",
            claim.metadata.namespace or "",
            {"status": status},
            type=STRATEGIC,
            subresource="status",
        )
