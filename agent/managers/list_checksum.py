"""The checksum of a checkpoint with a long list, which changes little between two writes, and mostly at its end.

A checksum is a step of Python for each byte, so what is the same up to the first change is not summed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Generic, TypeVar

from agent.managers import state_files

T = TypeVar("T")


class ListChecksum(Generic[T]):
    """Sums `head`, the items' printed forms with separators between them, and a tail."""

    def __init__(self, head: bytes, separator: bytes, printed: Callable[[T], bytes]) -> None:
        self._separator, self._printed = separator, printed
        self._head = state_files.checksum(head)
        self._known: list[tuple[T, int]] = []
        """The items of the last list, with the checksum up to each one's end."""

    def of(self, items: Sequence[T], tail: bytes) -> int:
        """Return the checksum. The same object counts as the same item."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0][0] is pair[1], zip(self._known, items, strict=False)))
        del self._known[same:]
        value = self._known[-1][1] if self._known else self._head
        for item in items[same:]:
            printed = self._printed(item)
            value = state_files.checksum(self._separator + printed if self._known else printed, value)
            self._known.append((item, value))
        return state_files.checksum(tail, value)
