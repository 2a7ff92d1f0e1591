"""Constraints over several devices of a claim: the same value of an attribute for all, or a different one for each.

They are asked while the search takes devices and told when it gives them back. A device without the attribute satisfies no
constraint. Upstream: dynamic-resource-allocation/structured, constraint.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.cel.devices import attribute_of
from control.scheduler.devices.inventory import Offer
from control.scheduler.devices.requests import Need
from kube.api import resource_v1


class Constraint:
    """One constraint of a claim with the devices taken so far."""

    def __init__(self, attribute: str, requests: Sequence[str], distinct: bool) -> None:
        self._attribute, self._requests, self._distinct = attribute, frozenset(requests), distinct
        self._values: list[object] = []

    def concerns(self, need: Need) -> bool:
        return not self._requests or need.request in self._requests or need.name in self._requests

    def add(self, offer: Offer) -> bool:
        """Take a device in, or return False where it does not go with the others."""
        value = attribute_of(offer.device.attributes, self._attribute, offer.driver)
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
        """Give the last device back."""
        self._values.pop()


def constraints(declared: Sequence[resource_v1.DeviceConstraint]) -> list[Constraint]:
    """Return a claim's constraints, nothing taken yet."""
    return [
        Constraint(one.match_attribute or one.distinct_attribute or "", one.requests, one.match_attribute is None)
        for one in declared
    ]
