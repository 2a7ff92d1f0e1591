"""Consumable capacity of shared devices: the amount that a request consumes, rounded up by the device's request policy.

Upstream: dynamic-resource-allocation/structured, consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from control.scheduler.devices.slice_device import SliceDevice
from kube import quantity
from kube.api import resource_v1


def consumption(
    device: SliceDevice, requested: Mapping[str, Decimal], used: Mapping[str, Decimal]
) -> dict[str, Decimal] | None:
    """Return the amount of each of a device's capacities that a request consumes; None if too little remains.

    A device that is not shared is allocated as a whole; its capacity must be sufficient.
    """
    prefix = f"{device.driver}/"
    requests = {name.removeprefix(prefix): amount for name, amount in requested.items()}
    if any(name not in device.capacity for name in requests):
        return None
    if not device.shared:
        fits = all(amount <= device.capacity[name] for name, amount in requests.items())
        return {} if fits else None
    consumed: dict[str, Decimal] = {}
    for published, declared in device.entry.capacity.items():
        name = published.removeprefix(prefix)
        amount = _rounded(requests.get(name), device.capacity[name], declared.request_policy)
        if amount is None or amount + used.get(name, Decimal(0)) > device.capacity[name]:
            return None
        consumed[name] = amount
    return consumed


def _rounded(
    request: Decimal | None, whole: Decimal, policy: resource_v1.CapacityRequestPolicy | None
) -> Decimal | None:
    """Return the amount that satisfies a request under a policy; None if the policy allows no such amount."""
    if request is None:
        return quantity.parse(policy.default) if policy is not None and policy.default is not None else whole
    if policy is None:
        return request
    if policy.valid_range is not None:
        least = quantity.parse(policy.valid_range.min or 0)
        amount = max(request, least)
        if step := quantity.parse(policy.valid_range.step or 0):
            amount = least + ((amount - least) / step).to_integral_value(ROUND_CEILING) * step
        most = policy.valid_range.max
        return None if most is not None and amount > quantity.parse(most) else amount
    if policy.valid_values:
        return min((v for v in map(quantity.parse, policy.valid_values) if v >= request), default=None)
    return request
