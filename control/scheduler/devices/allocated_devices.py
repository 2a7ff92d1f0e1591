"""Allocated devices: the allocations in claims, and decisions that are not written yet.

Kept up to date claim by claim. What this scheduler wrote itself counts from the answer on and not from when the watch shows it,
or the next pod would be given the same device. Upstream: dynamicresources/dra_manager.go, allocateddevices.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from control.scheduler.devices.slice_device import DeviceId
from kube import quantity
from kube.api import resource_v1
from kube.informer import Change
from kube.object_names import key_of

Allocation = resource_v1.AllocationResult
FINALIZER = "resource.kubernetes.io/delete-protection"


class AllocatedDevices:
    """Claims by key, and their devices."""

    def __init__(self) -> None:
        self.in_use: Counter[DeviceId] = Counter()
        """Number of requests that each device is allocated to, without administrators' access."""
        self.consumed: dict[DeviceId, dict[str, Decimal]] = {}
        """Consumed capacity of shared devices."""
        self.changes = 0
        """Rises when devices are allocated or come free."""
        self._claims: dict[str, resource_v1.ResourceClaim] = {}
        self._ahead: dict[str, int] = {}
        """Keys of claims that are newer here than in the informer, with their version."""
        self._pending: dict[str, Allocation] = {}

    # -- claims -----------------------------------------------------------------------------------------------------
    def get(self, key: str) -> resource_v1.ResourceClaim | None:
        """Return a claim in its newest known state."""
        return self._claims.get(key)

    def claims(self) -> Iterator[resource_v1.ResourceClaim]:
        return iter(self._claims.values())

    def changed(self, change: Change[resource_v1.ResourceClaim]) -> None:
        """Store what an informer reports, unless more is known already."""
        key, ahead = change.key, self._ahead.get(change.key)
        if change.type == "DELETED":
            self._ahead.pop(key, None)
            self._set(key, None)
            return
        if ahead is not None:
            if _version(change.new) < ahead and self._claims[key].metadata.uid == change.new.metadata.uid:
                return
            del self._ahead[key]
        self._set(key, change.new)

    def written(self, claim: resource_v1.ResourceClaim) -> None:
        """Store the response to a write of the scheduler."""
        key = key_of(claim)
        known = self._claims.get(key)
        self.settle(claim.metadata.uid or "")
        if known is not None and known.metadata.uid == claim.metadata.uid and _version(known) > _version(claim):
            return
        self._ahead[key] = _version(claim)
        self._set(key, claim)

    def _set(self, key: str, claim: resource_v1.ResourceClaim | None) -> None:
        before = self._claims.pop(key, None)
        if before is not None:
            self._count(before.status.allocation, -1)
        if claim is not None:
            self._claims[key] = claim
            self._count(claim.status.allocation, 1)

    # -- what is decided but not written ----------------------------------------------------------------------------
    def pending(self, uid: str) -> bool:
        """True while an allocation of the claim is being written."""
        return uid in self._pending

    def reserve(self, uid: str, allocation: Allocation) -> None:
        """Keep the devices of an allocation from others."""
        self.settle(uid)
        self._pending[uid] = allocation
        self._count(allocation, 1)

    def settle(self, uid: str) -> None:
        """The allocation was written, or will not be."""
        allocation = self._pending.pop(uid, None)
        self._count(allocation, -1)

    def _count(self, allocation: Allocation | None, sign: int) -> None:
        if allocation is None or allocation.devices is None:
            return
        self.changes += 1
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = (result.driver, result.pool, result.device)
            self.in_use[device] += sign
            if not self.in_use[device]:
                del self.in_use[device]
            if result.consumed_capacity:
                self._consume(device, result, sign)

    def _consume(self, device: DeviceId, result: resource_v1.DeviceRequestAllocationResult, sign: int) -> None:
        used = self.consumed.setdefault(device, {})
        for name, amount in result.consumed_capacity.items():
            own = name.removeprefix(f"{result.driver}/")
            used[own] = used.get(own, Decimal(0)) + sign * quantity.parse(amount)
            if not used[own]:
                del used[own]
        if not used:
            del self.consumed[device]


def _version(claim: resource_v1.ResourceClaim) -> int:
    return int(claim.metadata.resource_version or 0)
