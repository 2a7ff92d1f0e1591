"""Writes allocations and reservations of devices to claims, before their pod is bound.

A claim that changed meanwhile is read again: what it requests does not change, only who has it; so is one whose write failed
but may have taken effect, before its devices are given to others. Devices that must be prepared
first (`bindingConditions`) are waited for; where that fails the allocation is taken back, and the pod is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from control.scheduler.change_waiters import ChangeWaiters
from control.scheduler.devices import extended
from control.scheduler.devices.allocated_devices import FINALIZER, AllocatedDevices
from control.scheduler.framework import BindingFailed
from kube.api import core_v1, resource_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_time
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.object_names import key_of, name_of, namespace_of
from kube.pod_claims import is_reserved_for

log = logging.getLogger(__name__)
TRIES = 5
FIRST_PAUSE, LAST_PAUSE = 1.0, 10.0
"""Seconds between attempts to read a claim whose write failed."""


@dataclass(slots=True)
class Reserved:
    """One claim of a placed pod, with what is still to be written (None: nothing but the reservation)."""

    claim: resource_v1.ResourceClaim
    allocation: resource_v1.AllocationResult | None = None
    mappings: list[core_v1.ContainerExtendedResourceRequest] | None = None
    """Not None: the claim has to be made first."""
    created: bool = False
    """True if the claim was made for the pod."""
    written: bool = False
    reserved_uid: str = ""
    """UID under which the devices are reserved: that of a claim that is still to be made is temporary."""

    def __post_init__(self) -> None:
        self.reserved_uid = self.reserved_uid or self.claim.metadata.uid or ""


class ClaimWriter:
    """The scheduler's hand in claims."""

    def __init__(self, client: Client, allocated: AllocatedDevices, clock: Clock, wait_seconds: float) -> None:
        self._client, self._allocated, self._clock, self._seconds = client, allocated, clock, wait_seconds
        self.waiters = ChangeWaiters()
        """Pods that wait for devices, by the keys of their claims."""

    async def bind(self, pod: core_v1.Pod, reserved: Reserved) -> None:
        """Write one claim's allocation and reservation; raises BindingFailed, StatusError."""
        if reserved.mappings is not None:
            reserved.claim = await self._client.create(reserved.claim)
            reserved.created = True
        for attempt in range(TRIES):
            claim = reserved.claim
            try:
                claim = await self._write(pod, reserved)
                break
            except StatusError as error:
                if not error.conflict and not _may_have_taken_effect(error):
                    raise
                reserved.claim = claim = await self._newest(claim)
                if _is_written(pod, claim, reserved.allocation):
                    break
                if attempt + 1 == TRIES:
                    raise
        reserved.claim, reserved.written = claim, True
        self._allocated.written(claim)
        self._allocated.settle(reserved.reserved_uid)
        if reserved.mappings is not None:
            await self._tell_pod(pod, claim, reserved.mappings)

    async def _newest(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        """Read a claim as soon as the server can be reached; raises BindingFailed if it is deleted.

        There is no limit of the time: its devices must stay reserved, because the scheduler decides from memory during an
        outage, and the next pod's claim would be written with the same devices.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                found = await self._client.get(resource_v1.ResourceClaim, name_of(claim), namespace_of(claim))
            except StatusError as error:
                if error.code == 404:
                    break
                if error.code == 403:
                    raise
                log.warning("cannot determine yet whether %s is allocated: %s", key_of(claim), error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
                continue
            if found.metadata.uid == claim.metadata.uid:
                return found
            break
        raise BindingFailed(f"claim {key_of(claim)} got deleted in the meantime")

    async def _write(self, pod: core_v1.Pod, reserved: Reserved) -> resource_v1.ResourceClaim:
        claim, allocation = reserved.claim, reserved.allocation
        who = f"{namespace_of(claim)}/{name_of(claim)}"
        if claim.metadata.deletion_timestamp is not None:
            raise BindingFailed(f"claim {who} got deleted in the meantime")
        status = claim.status
        if allocation is not None:
            if status.allocation is not None:
                raise BindingFailed(f"claim {who} got allocated elsewhere in the meantime")
            if FINALIZER not in claim.metadata.finalizers:
                finalizers = [*claim.metadata.finalizers, FINALIZER]
                metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers)
                reserved.claim = claim = await self._client.update(msgspec.structs.replace(claim, metadata=metadata))
            stamped = msgspec.structs.replace(allocation, allocation_timestamp=format_time(self._clock.now()))
            status = msgspec.structs.replace(claim.status, allocation=stamped)
        elif status.allocation is None:
            raise BindingFailed(f"claim {who} got deallocated in the meantime")
        if is_reserved_for(claim, pod):
            return claim
        consumer = resource_v1.ResourceClaimConsumerReference(
            resource="pods", name=name_of(pod), uid=pod.metadata.uid or ""
        )
        status = msgspec.structs.replace(status, reserved_for=[*claim.status.reserved_for, consumer])
        return await self._client.update_status(msgspec.structs.replace(claim, status=status))

    async def _tell_pod(
        self,
        pod: core_v1.Pod,
        claim: resource_v1.ResourceClaim,
        mappings: list[core_v1.ContainerExtendedResourceRequest],
    ) -> None:
        status = core_v1.PodExtendedResourceClaimStatus(request_mappings=mappings, resource_claim_name=name_of(claim))
        patch = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"extendedResourceClaimStatus": msgspec.to_builtins(status)},
        }
        await self._client.patch(
            core_v1.Pod, name_of(pod), namespace_of(pod), patch, type=STRATEGIC, subresource="status"
        )

    # -- devices that are prepared first ----------------------------------------------------------------------------
    async def wait_ready(
        self, uid: str, claims: list[resource_v1.ResourceClaim], abandoned: Callable[[], bool]
    ) -> None:
        """Wait until all devices meet their binding conditions; raises BindingFailed, also for an abandoned pod."""
        try:
            with self.waiters.waiting(uid, map(key_of, claims)) as changed:
                async with asyncio.timeout(self._seconds):
                    while True:
                        changed.clear()
                        if abandoned():
                            raise BindingFailed("the pod was deleted in the meantime")
                        if all(_ready(self._allocated.get(key_of(claim)) or claim) for claim in claims):
                            return
                        await changed.wait()
        except TimeoutError as error:
            raise BindingFailed("device binding timeout") from error

    # -- taking back ------------------------------------------------------------------------------------------------
    async def release(self, pod: core_v1.Pod, reserved: Reserved) -> None:
        """Take a reservation back, and an allocation with it where its devices did not get ready."""
        claim = self._allocated.get(key_of(reserved.claim)) or reserved.claim
        if reserved.mappings is not None:
            await self.delete(claim)
        elif _needs_preparation(claim) and all(c.uid == pod.metadata.uid for c in claim.status.reserved_for):
            await self.deallocate(claim)
        else:
            patch = {
                "metadata": {"uid": claim.metadata.uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": pod.metadata.uid}]},
            }
            kind = resource_v1.ResourceClaim
            self._allocated.written(
                await self._client.patch(
                    kind, name_of(claim), namespace_of(claim), patch, type=STRATEGIC, subresource="status"
                )
            )

    async def deallocate(self, claim: resource_v1.ResourceClaim) -> None:
        """Give a claim's devices back; one that was made for extended resources goes altogether."""
        if extended.ANNOTATION in claim.metadata.annotations:
            await self.delete(claim)
            return
        status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=[], devices=[])
        self._allocated.written(await self._client.update_status(msgspec.structs.replace(claim, status=status)))

    async def delete(self, claim: resource_v1.ResourceClaim) -> None:
        """Delete a claim and what keeps it from going."""
        if FINALIZER in claim.metadata.finalizers:
            kept = [name for name in claim.metadata.finalizers if name != FINALIZER]
            metadata = msgspec.structs.replace(claim.metadata, finalizers=kept)
            claim = await self._client.update(msgspec.structs.replace(claim, metadata=metadata))
        await delete_if_present(
            self._client, resource_v1.ResourceClaim, name_of(claim), namespace_of(claim), uid=claim.metadata.uid or ""
        )


def _may_have_taken_effect(error: StatusError) -> bool:
    """Return whether a write that failed may have been carried out: its response was lost, or it took too long."""
    return error.code >= 500


def _is_written(
    pod: core_v1.Pod, claim: resource_v1.ResourceClaim, allocation: resource_v1.AllocationResult | None
) -> bool:
    """Return whether a claim is reserved for a pod, with these devices if it is this write that allocates them."""
    if claim.status.allocation is None or not is_reserved_for(claim, pod):
        return False
    return allocation is None or claim.status.allocation.devices == allocation.devices


def _results(claim: resource_v1.ResourceClaim) -> list[resource_v1.DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None and allocation.devices is not None else []


def _needs_preparation(claim: resource_v1.ResourceClaim) -> bool:
    return any(result.binding_conditions for result in _results(claim))


def _ready(claim: resource_v1.ResourceClaim) -> bool:
    """True if every device meets its conditions; raises BindingFailed if one never will."""
    by_device = {(s.driver, s.pool, s.device): s.conditions for s in claim.status.devices}
    ready = True
    for result in _results(claim):
        conditions = by_device.get((result.driver, result.pool, result.device), [])
        true = {condition.type for condition in conditions if condition.status == "True"}
        if failed := true & set(result.binding_failure_conditions):
            raise BindingFailed(f"device {result.device} binding failed: {', '.join(sorted(failed))}")
        ready &= set(result.binding_conditions) <= true
    return ready
