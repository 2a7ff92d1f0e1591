"""Devices, capacity and counters that a search uses, in addition to those of claims that are allocated already.

A device that is partitioned draws on the counters of its pool. A shared device has capacity that several claims consume. An
administrator's access uses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from control.event_loop import inline
from control.scheduler.devices.allocated_devices import AllocatedDevices
from control.scheduler.devices.capacity import consumption
from control.scheduler.devices.inventory import Pool
from control.scheduler.devices.requests import RequestAlternative
from control.scheduler.devices.slice_device import DeviceId, SliceDevice

ZERO = Decimal(0)
MOST = inline.MOST // 2
"""Upper limit of the charge for one step, so that each step fits the limit of the event loop."""


class DeviceResult(msgspec.Struct, frozen=True):
    """A device that the search allocates to a request of a claim."""

    alternative: RequestAlternative
    device: SliceDevice
    consumed: dict[str, Decimal]


class DeviceUsage:
    """Usage of one search; every change can be undone."""

    def __init__(self, allocated: AllocatedDevices) -> None:
        self._allocated = allocated
        self._mine: Counter[DeviceId] = Counter()
        """Devices allocated in this search, without administrators' access."""
        self._used: dict[DeviceId, dict[str, Decimal]] = {}
        self._left: dict[int, dict[tuple[str, str], Decimal]] = {}
        """Remaining counters of each pool."""

    def consume(self, alternative: RequestAlternative, device: SliceDevice, pool: Pool) -> dict[str, Decimal] | None:
        """Charge a device's pool and return what is used of its capacity; None if there is not so much left."""
        consumed = consumption(device, alternative.capacity, {} if alternative.admin else self._consumed(device))
        return consumed if consumed is not None and (alternative.admin or self.charge(device, pool, -1)) else None

    def free(self, alternative: RequestAlternative, device: SliceDevice, results: Sequence[DeviceResult]) -> bool:
        """Return whether a device is available to a claim with these results."""
        if alternative.admin:  # sees allocated devices too, but each of them once
            return all(result.device.id != device.id for result in results)
        return device.shared or not (device.id in self._allocated.in_use or self._mine[device.id])

    def _consumed(self, device: SliceDevice) -> dict[str, Decimal]:
        before, now = self._allocated.consumed.get(device.id, {}), self._used.get(device.id, {})
        return {name: before.get(name, ZERO) + now.get(name, ZERO) for name in before.keys() | now.keys()}

    def count(self, device: SliceDevice, consumed: dict[str, Decimal], sign: int) -> None:
        """Add a device and what is used of its capacity (1), or remove them (-1)."""
        self._mine[device.id] += sign
        used = self._used.setdefault(device.id, {})
        for name, amount in consumed.items():
            used[name] = used.get(name, ZERO) + sign * amount

    def charge(self, device: SliceDevice, pool: Pool, sign: int) -> bool:
        """Take a device's counters from its pool (-1) or return them (1); False if too few remain."""
        if not device.counters or (device.shared and self._in_use(device)):
            return True  # a shared device takes its counters once
        left = self._left.get(id(pool))
        if left is None:
            inline.spent(min(len(pool.everything), MOST // 2))
            left = self._left[id(pool)] = dict(pool.counters)
            for other in pool.everything:
                if other.id in self._allocated.in_use:
                    for set_, name, amount in other.counters:
                        left[set_, name] = left.get((set_, name), ZERO) - amount
        if sign < 0 and any(left.get((set_, name), ZERO) < amount for set_, name, amount in device.counters):
            return False
        for set_, name, amount in device.counters:
            left[set_, name] = left.get((set_, name), ZERO) + sign * amount
        return True

    def _in_use(self, device: SliceDevice) -> bool:
        return device.id in self._allocated.in_use or self._mine[device.id] > 0
