"""The folders that a walk is in, each below the one before: a pod can nest hundreds of thousands.

The uppermost are objects. Those below them are packed into one array, 28 bytes and the name each, which is a hundredth of the
disk space of a folder; the last one is an object again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from agent.files.directory import Level

OBJECTS = 1000
"""Levels that are not packed; few paths have more."""
_HEAD, _LENGTH = struct.Struct("=HQQq"), struct.Struct("=H")


class Levels:
    """A stack of levels. Entries that are left in a packed one are dropped: its position is that of the next one to read."""

    def __init__(self, first: Level) -> None:
        self._objects = [first]
        self._packed, self._count = bytearray(), 0
        self._deep: Level | None = None
        """The last level, if it is below those that are objects."""

    def __len__(self) -> int:
        return len(self._objects) + self._count + (self._deep is not None)

    @property
    def last(self) -> Level:
        return self._objects[-1] if self._deep is None else self._deep

    @property
    def packs(self) -> bool:
        """Return whether the last level is packed when another is pushed; it must have no entries left then."""
        return self._deep is not None

    @property
    def remaining(self) -> int:
        """The number of entries that are left in all levels."""
        deep = [] if self._deep is None else [self._deep]
        return sum(len(level.left) for level in (*self._objects, *deep))

    def push(self, level: Level) -> None:
        if len(self._objects) < OBJECTS:
            self._objects.append(level)
            return
        if self._deep is not None:
            self._packed += _pack(self._deep)
            self._count += 1
        self._deep = level

    def pop(self) -> Level:
        """Remove the last level and return it."""
        level = self.last
        if self._deep is None:
            self._objects.pop()
        elif not self._count:
            self._deep = None
        else:
            (length,) = _LENGTH.unpack_from(self._packed, len(self._packed) - _LENGTH.size)
            start = len(self._packed) - _LENGTH.size - length - _HEAD.size
            self._deep = _unpack(self._packed, start, length)
            del self._packed[start:]
            self._count -= 1
        return level

    def split(self, number: int) -> Iterator[Level]:
        """Keep so many levels, at most OBJECTS; return the others, the uppermost first."""
        rest, self._objects = self._objects[number:], self._objects[:number]
        packed, self._packed, self._count = self._packed, bytearray(), 0
        deep, self._deep = self._deep, None
        return _all(rest, packed, deep)


def _all(objects: list[Level], packed: bytearray, deep: Level | None) -> Iterator[Level]:
    yield from objects
    start = 0
    while start < len(packed):
        (length,) = _LENGTH.unpack_from(packed, start)
        yield _unpack(packed, start, length)
        start += _HEAD.size + length + _LENGTH.size
    if deep is not None:
        yield deep


def _pack(level: Level) -> bytes:
    name = os.fsencode(level.name)
    head = _HEAD.pack(len(name), *level.identity, level.position)
    return head + name + _LENGTH.pack(len(name))


def _unpack(packed: bytearray, start: int, length: int) -> Level:
    _, device, inode, position = _HEAD.unpack_from(packed, start)
    name = os.fsdecode(bytes(packed[start + _HEAD.size : start + _HEAD.size + length]))
    return Level(name, (device, inode), position=position)
