"""The order of a merged list: items of the patch keep the patch's order, all others the server's.

Where the two meet, an item that only the server has goes before the next ordered item if it stood before it on the
server; otherwise after.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any


def interleave(
    merged: Sequence[Any], order: Iterable[Any], server: Iterable[Any], identify: Callable[[Any], Hashable]
) -> list[Any]:
    """Return the merged items in order; entries mean the same item where `identify` makes the same of them."""
    wanted, live = _places(order, identify), _places(server, identify)
    ordered: list[tuple[int, int, Any]] = []
    others: list[tuple[int, Any]] = []
    for item in merged:
        name = identify(item)
        if name in wanted:
            ordered.append((wanted[name], live.get(name, -1), item))
        else:
            others.append((live.get(name, -1), item))
    ordered.sort(key=lambda entry: entry[0])
    others.sort(key=lambda entry: entry[0])
    result: list[Any] = []
    waiting = 0
    for _, here, item in ordered:
        while waiting < len(others) and 0 <= others[waiting][0] < here:
            result.append(others[waiting][1])
            waiting += 1
        result.append(item)
    return result + [item for _, item in others[waiting:]]


def _places(items: Iterable[Any], identify: Callable[[Any], Hashable]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        found.setdefault(identify(item), index)
    return found
