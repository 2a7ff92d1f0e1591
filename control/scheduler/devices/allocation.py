"""Allocation of devices for claims on one node: a depth-first search with backtracking.

The search takes the claims in order, the requests of each claim, the alternatives of each request (the preferred one first),
and devices up to the request's count. A device is allocated if the selectors of class and request match, its taints are
tolerated, the claim's constraints hold, and neither the device nor its pool's counters are in use. The first complete solution
is the result. Upstream: dynamic-resource-allocation/structured.

The search can take exponential time. It runs in steps, and pauses at the cost limit of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from control.event_loop import inline
from control.scheduler.devices.allocated_devices import AllocatedDevices
from control.scheduler.devices.budget import SearchBudget
from control.scheduler.devices.constraints import ClaimConstraint, constraints
from control.scheduler.devices.device_usage import MOST, DeviceResult, DeviceUsage
from control.scheduler.devices.inventory import Pool, View
from control.scheduler.devices.requests import MOST_RESULTS, ClaimToAllocate, DeviceError, RequestAlternative, Selector
from control.scheduler.devices.slice_device import DEVICE_COST, SliceDevice

PoolDevices = list[tuple[SliceDevice, Pool]]
STEPS = 256
"""The budget is looked at every so many devices, and before each evaluation of a selector."""
EACH_CONSTRAINT = 4
"""Units of cost to prepare a constraint."""
CONSTRAINT = 2 * DEVICE_COST
"""Units of cost to see whether a device goes with those taken before."""
T = TypeVar("T")


class SelectorEvaluation(msgspec.Struct, frozen=True):
    """A selector's result for a device, which must be known before the search continues."""

    selector: Selector
    device: SliceDevice


SearchSteps = Generator[SelectorEvaluation | None, None, T]
"""Work that yields at the cost limit of the event loop; the yielded evaluation is to be computed in a thread."""


class PoolNotReady(DeviceError):
    """All devices of a pool are requested, and the pool is incomplete or invalid."""


class DeviceSearch:
    """The search for all claims of a pod on one node."""

    def __init__(
        self, claims: Sequence[ClaimToAllocate], view: View, allocated: AllocatedDevices, budget: SearchBudget
    ) -> None:
        self._claims, self._budget = claims, budget
        self._pools, self._pool_devices = view.pools, view.devices
        self._constraints: dict[int, list[ClaimConstraint]] = {}
        """Those of the claims that the search has come to, by the claims' numbers."""
        self._results: list[list[DeviceResult]] = [[] for _ in claims]
        self._usage = DeviceUsage(allocated)
        self._everything: dict[int, PoolDevices] = {}
        self._steps = 0
        self._evaluation: SelectorEvaluation | None = None

    def steps(self) -> SearchSteps[list[list[DeviceResult]] | None]:
        """Return the devices of each claim; None if the node has too few.

        Raises DeviceError for an invalid claim, SearchTimeout.
        """
        return self._results if (yield from self._request(0, 0)) else None

    def still(self, found: Sequence[Sequence[DeviceResult]]) -> bool:
        """Take what an earlier search found on the same view; False if it is not available any more.

        Selectors, taints and constraints hold as before.
        """
        pools = {device.id: pool for device, pool in self._pool_devices}
        return all(
            self._still(self._results[claim], result, pools[result.device.id])
            for claim, devices in enumerate(found)
            for result in devices
        )

    def _still(self, results: list[DeviceResult], result: DeviceResult, pool: Pool) -> bool:
        inline.spent(DEVICE_COST)
        alternative, device, usage = result.alternative, result.device, self._usage
        consumed = usage.consume(alternative, device, pool) if usage.free(alternative, device, results) else None
        if consumed is None:
            return False
        results.append(DeviceResult(alternative, device, consumed))
        if not alternative.admin:
            usage.count(device, consumed, 1)
        return True

    # -- the search -------------------------------------------------------------------------------------------------
    def _request(self, claim: int, request: int) -> SearchSteps[bool]:
        while claim < len(self._claims) and request == len(self._claims[claim].requests):
            claim, request = claim + 1, 0
        if claim == len(self._claims):
            return True
        for alternative in self._claims[claim].requests[request]:
            if (yield from self._alternative(claim, request, alternative)):
                return True
        return False

    def _alternative(self, claim: int, request: int, alternative: RequestAlternative) -> SearchSteps[bool]:
        devices = (yield from self._all(alternative)) if alternative.everything else self._pool_devices
        count = len(devices) if alternative.everything else alternative.count
        return count > 0 and (yield from self._devices(claim, request, alternative, count, devices, 0))

    def _devices(
        self, claim: int, request: int, alternative: RequestAlternative, left: int, devices: PoolDevices, start: int
    ) -> SearchSteps[bool]:
        """Allocate `left` more devices, from `start` on: the order of a request's devices does not matter."""
        if not left:
            return (yield from self._request(claim, request + 1))
        for position in range(start, start + 1 if alternative.everything else len(devices)):
            device, pool = devices[position]
            undo = yield from self._in_steps(partial(self._take, claim, alternative, device, pool))
            if undo is None:
                continue
            next_ = position if device.shared and not alternative.everything else position + 1
            if (yield from self._devices(claim, request, alternative, left - 1, devices, next_)):
                return True
            undo()
        return False

    def _all(self, alternative: RequestAlternative) -> SearchSteps[PoolDevices]:
        """Return all devices that match a request for all; raises PoolNotReady."""
        known = self._everything.get(id(alternative))
        if known is None:
            for pool in self._pools:
                if pool.incomplete or pool.invalid:
                    state = "being updated" if pool.incomplete else "invalid"
                    name = f"{pool.driver}/{pool.name}"
                    raise PoolNotReady(
                        f"request {alternative.name}: asks for all devices, but resource pool {name} is currently {state}"
                    )
            known = []
            for device, pool in self._pool_devices:
                if (yield from self._in_steps(partial(self._selected, alternative, device))):
                    known.append((device, pool))
            self._everything[id(alternative)] = known
        return known

    def _in_steps(self, work: Callable[[], T]) -> SearchSteps[T]:
        """Return the result of `work`, which is repeated later if it exceeds the cost limit of the event loop."""
        while True:
            try:
                return work()
            except inline.TooMuchHere:
                self._budget.check()
                yield self._evaluation

    # -- one device -------------------------------------------------------------------------------------------------
    def _take(
        self, claim: int, alternative: RequestAlternative, device: SliceDevice, pool: Pool
    ) -> Callable[[], None] | None:
        """Allocate a device and return the function that undoes it; None if it is not available."""
        self._evaluation = None
        applied = self._constraints_of(claim)
        inline.spent(min(device.cost + DEVICE_COST * len(alternative.capacity) + CONSTRAINT * len(applied), MOST))
        self._steps += 1
        if self._steps % STEPS == 0:
            self._budget.check()
        results = self._results[claim]
        if len(results) >= MOST_RESULTS or not self._usage.free(alternative, device, results):
            return None
        if (
            pool.invalid
            or not self._selected(alternative, device)
            or alternative.tolerations.untolerated(device.entry.taints)
        ):
            return None
        consumed = self._usage.consume(alternative, device, pool)
        if consumed is None:
            return None
        applicable: list[ClaimConstraint] = []
        for constraint in applied:
            if constraint.concerns(alternative):
                if not constraint.add(device):
                    for other in applicable:
                        other.remove()
                    if not alternative.admin:
                        self._usage.charge(device, pool, 1)
                    return None
                applicable.append(constraint)
        results.append(DeviceResult(alternative, device, consumed))
        if not alternative.admin:
            self._usage.count(device, consumed, 1)

        def undo() -> None:
            results.pop()
            for constraint in applicable:
                constraint.remove()
            if not alternative.admin:
                self._usage.count(device, consumed, -1)
                self._usage.charge(device, pool, 1)

        return undo

    def _constraints_of(self, claim: int) -> list[ClaimConstraint]:
        known = self._constraints.get(claim)
        if known is None:
            declared = self._claims[claim].constraints
            inline.spent(min(EACH_CONSTRAINT * len(declared), MOST))
            known = self._constraints[claim] = constraints(declared)
        return known

    def _selected(self, alternative: RequestAlternative, device: SliceDevice) -> bool:
        self._evaluation = None
        inline.spent(len(alternative.selectors))
        for selector in alternative.selectors:
            result = device.result(selector)
            if result is None:
                self._budget.check()
                self._evaluation = SelectorEvaluation(selector, device)
                result = device.evaluate(selector, self._budget)
            if isinstance(result, str):
                raise DeviceError(f"{selector.where}: {result}")
            if not result:
                return False
        self._evaluation = None
        return True
