"""Capacity of devices that are shared: what a request takes of it, rounded up as the device's policy says.

Upstream: dynamic-resource-allocation/structured, consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from control.scheduler.devices.inventory import Offer
from kube import quantity
from kube.api import resource_v1


def consumption(offer: Offer, asked: Mapping[str, Decimal], used: Mapping[str, Decimal]) -> dict[str, Decimal] | None:
    """Return what a request takes of each of a device's capacities; None where there is not so much left.

    A device that is not shared is allocated as a whole, and must only be large enough.
    """
    prefix = f"{offer.driver}/"
    wishes = {name.removeprefix(prefix): amount for name, amount in asked.items()}
    if any(name not in offer.capacity for name in wishes):
        return None
    if not offer.shared:
        fits = all(amount <= offer.capacity[name] for name, amount in wishes.items())
        return {} if fits else None
    taken: dict[str, Decimal] = {}
    for published, declared in offer.device.capacity.items():
        name = published.removeprefix(prefix)
        amount = _rounded(wishes.get(name), offer.capacity[name], declared.request_policy)
        if amount is None or amount + used.get(name, Decimal(0)) > offer.capacity[name]:
            return None
        taken[name] = amount
    return taken


def _rounded(wish: Decimal | None, whole: Decimal, policy: resource_v1.CapacityRequestPolicy | None) -> Decimal | None:
    """Return the amount that satisfies a wish under a policy; None where the policy allows no such amount."""
    if wish is None:
        return quantity.parse(policy.default) if policy is not None and policy.default is not None else whole
    if policy is None:
        return wish
    if policy.valid_range is not None:
        least = quantity.parse(policy.valid_range.min or 0)
        amount = max(wish, least)
        if policy.valid_range.step is not None:
            step = quantity.parse(policy.valid_range.step)
            amount = least + ((amount - least) / step).to_integral_value(ROUND_CEILING) * step
        most = policy.valid_range.max
        return None if most is not None and amount > quantity.parse(most) else amount
    if policy.valid_values:
        return min((v for v in map(quantity.parse, policy.valid_values) if v >= wish), default=None)
    return wish
