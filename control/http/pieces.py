"""A large list as it is written: its parts are made one after the other, when the client has read those before.

To join a list of 300 MiB takes almost half a second, during which the event loop answers nobody, and as much memory again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PART = 64 << 10
"""Bytes of a part, more where one item has more."""


class Pieces:
    """`head`, items with `between` between them, `tail`; of each item the first `skip` bytes are left out."""

    __slots__ = ("_between", "_head", "_items", "_size", "_skip", "_tail")

    def __init__(self, head: bytes, between: bytes, tail: bytes, skip: int = 0) -> None:
        self._head, self._between, self._tail, self._skip = head, between, tail, skip
        self._items: list[bytes] = []
        self._size = len(head) + len(tail) - len(between)

    def extend(self, items: Iterable[bytes]) -> None:
        """Add items."""
        count = len(self._items)
        self._items += items
        added = self._items[count:]
        self._size += sum(map(len, added)) + len(added) * (len(self._between) - self._skip)

    def __len__(self) -> int:
        return self._size if self._items else len(self._head) + len(self._tail)

    def parts(self, most: int = PART) -> Iterator[bytes]:
        """Return the whole in parts of about so many bytes."""
        between, skip = self._between, self._skip
        part, size = [self._head], 0
        for index, item in enumerate(self._items):
            part += (between, item[skip:]) if index else (item[skip:],)
            size += len(item)
            if size >= most:
                yield b"".join(part)
                part, size = [], 0
        part.append(self._tail)
        yield b"".join(part)

    def whole(self) -> bytes:
        """Return all of it. Everything is copied once: a second copy costs as much as finding the items."""
        if not self._items:
            return self._head + self._tail
        skip = self._skip
        bare = [item[skip:] for item in self._items] if skip else self._items.copy()
        bare[0] = self._head + bare[0]
        bare[-1] += self._tail
        return self._between.join(bare)

    def gathered(self) -> bytearray:
        """Return all of it, joined a part at a time: other threads continue meanwhile."""
        found = bytearray()
        for part in self.parts():
            found += part
        return found


Body = bytes | Pieces


def whole(body: Body) -> bytes:
    """Return a body as bytes."""
    return body.whole() if isinstance(body, Pieces) else body
