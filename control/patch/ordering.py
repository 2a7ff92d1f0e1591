"""The order of a merged list: what a patch orders keeps the patch's order, the rest keeps the server's.

Where the two meet, an item that only the server has goes before the next ordered item if it stood before it on the
server; otherwise after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def interleave(
    merged: Sequence[Any], order: Sequence[Any], server: Sequence[Any], alike: Callable[[Any, Any], bool]
) -> list[Any]:
    """Return the merged items in order; `alike` says whether two entries mean the same item."""

    def place(item: Any, within: Sequence[Any]) -> int:
        return next((index for index, other in enumerate(within) if alike(item, other)), -1)

    ordered = sorted((item for item in merged if place(item, order) >= 0), key=lambda item: place(item, order))
    others = [item for item in merged if place(item, order) < 0]
    others.sort(key=lambda item: place(item, server))
    result: list[Any] = []
    waiting = iter(others)
    other = next(waiting, None)
    for item in ordered:
        here = place(item, server)
        while other is not None and 0 <= place(other, server) < here:
            result.append(other)
            other = next(waiting, None)
        result.append(item)
    while other is not None:
        result.append(other)
        other = next(waiting, None)
    return result
