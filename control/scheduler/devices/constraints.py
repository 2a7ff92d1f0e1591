"""Constraints over several devices of a claim: the same value of an attribute for all, or a different one for each.

The search adds each device that it allocates and removes it when it backtracks. A device without the attribute satisfies no
constraint. Upstream: dynamic-resource-allocation/structured, constraint.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.cel.devices import attribute_of
from control.scheduler.devices.requests import RequestAlternative
from control.scheduler.devices.slice_device import SliceDevice
from kube.api import resource_v1


class ClaimConstraint:
    """One constraint of a claim with the devices allocated so far."""

    def __init__(self, attribute: str, requests: Sequence[str], *, distinct: bool) -> None:
        self._attribute, self._requests, self._distinct = attribute, frozenset(requests), distinct
        self._values: list[object] = []

    def concerns(self, alternative: RequestAlternative) -> bool:
        return not self._requests or alternative.request in self._requests or alternative.name in self._requests

    def add(self, device: SliceDevice) -> bool:
        """Add a device; False if it violates the constraint."""
        value = attribute_of(device.entry.attributes, self._attribute, device.driver)
        if value is None:
            return False
        if self._distinct:
            if value in self._values:
                return False
        elif self._values and self._values[0] != value:
            return False
        self._values.append(value)
        return True

    def remove(self) -> None:
        """Remove the device added last."""
        self._values.pop()


def constraints(declared: Sequence[resource_v1.DeviceConstraint]) -> list[ClaimConstraint]:
    """Return a claim's constraints without any devices."""
    return [
        ClaimConstraint(
            one.match_attribute or one.distinct_attribute or "", one.requests, distinct=one.match_attribute is None
        )
        for one in declared
    ]
