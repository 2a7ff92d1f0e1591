"""Pools of numbers (addresses, ports), each of which is allocated to one owner.

A pool has two bands: numbers that users request explicitly are expected in the lower one, so other allocations are random in
the upper band first and only then in the lower (KEP-3070 for addresses, KEP-3668 for ports). All state is in memory and
changes without waiting, so that two requests in one server can never be given the same number.
"""

from __future__ import annotations

import itertools
import random


class AlreadyAllocated(Exception):
    """The number already has an owner."""


class OutOfRange(Exception):
    """The number is not in the pool."""


class Exhausted(Exception):
    """No number is free."""


class Pool:
    """Numbers first .. first+size-1, the first `offset` of which are the lower band."""

    def __init__(self, first: int, size: int, offset: int, owners: dict[int, str] | None = None) -> None:
        """`owners` is shared between pools that may overlap."""
        self.first, self.size, self.offset = first, size, offset
        self._owners: dict[int, str] = {} if owners is None else owners

    def __contains__(self, number: int) -> bool:
        return self.first <= number < self.first + self.size

    def owner(self, number: int) -> str | None:
        return self._owners.get(number)

    def owners(self) -> dict[int, str]:
        """Return a copy of the allocations."""
        return dict(self._owners)

    def note(self, number: int, owner: str) -> None:
        """Record an allocation that is known from stored objects; the first to be known keeps it."""
        self._owners.setdefault(number, owner)

    def claim(self, number: int, owner: str) -> None:
        """Give a number to an owner; raises OutOfRange or AlreadyAllocated."""
        if number not in self:
            raise OutOfRange
        if number in self._owners:
            raise AlreadyAllocated
        self._owners[number] = owner

    def claim_any(self, owner: str) -> int:
        """Give any free number to an owner, the upper band first; raises Exhausted."""
        for low, high in ((self.offset, self.size), (0, self.offset)):
            if low >= high:
                continue
            start, first = random.randrange(low, high), self.first
            # In C: of a band that is almost full most numbers are passed.
            band = itertools.chain(range(first + start, first + high), range(first + low, first + start))
            number = next(itertools.filterfalse(self._owners.__contains__, band), None)
            if number is not None:
                self._owners[number] = owner
                return number
        raise Exhausted

    def clear(self) -> None:
        self._owners.clear()

    def free(self, number: int, owner: str) -> None:
        """Release a number of an owner; numbers of others are ignored."""
        if self._owners.get(number) == owner:
            del self._owners[number]


def address_offset(size: int) -> int:
    """Return the size of the lower band of an address range: a sixteenth of it, between 16 and 256."""
    return 0 if size <= 16 else min(max(16, size // 16), 256)


def port_offset(size: int) -> int:
    """Return the size of the lower band of a port range: a thirty-second of it, between 16 and 128."""
    return 0 if size <= 16 else min(max(16, size // 32), 128)
