"""Sets of processors in the kernel's list format: "0-3,8" (cpuset(7))."""

from __future__ import annotations

from collections.abc import Iterable

CPUSet = frozenset[int]


def parse(text: str) -> CPUSet:
    """Read a list such as "0-3,8"; "" is the empty set. Raise ValueError."""
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.strip().split(","))):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if low < 0 or high < low:
            raise ValueError(f"invalid range {part!r}")
        found.update(range(low, high + 1))
    return frozenset(found)


def render(numbers: Iterable[int]) -> str:
    """Write a set in the shortest list form."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
