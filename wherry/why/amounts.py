"""Amounts of resources as people and kubectl read them."""

from __future__ import annotations

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def is_bytes(name: str) -> bool:
    """Return whether a resource is counted in bytes."""
    return name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")


def text(name: str, number: int) -> str:
    """Return an amount (kube.pod_requests) for people: 250m, 2, 3.1Gi."""
    if name == "cpu":
        return f"{number // 1000}" if number % 1000 == 0 else f"{number}m"
    if not is_bytes(name):
        return str(number)
    for unit, size in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return str(number)


def at_most(name: str, number: int) -> str:
    """Return an amount as a quantity that is not larger: for a command."""
    if name == "cpu":
        return f"{number}m"
    return f"{number >> 20}Mi" if is_bytes(name) and number >= 1 << 20 else str(number)
