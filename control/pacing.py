"""Giving the event loop back during work on many objects, of which one after the other would block everybody.

A request works for a slice: about a millisecond, or some objects' bytes. Then it waits for its turn, and one request
has a turn in a round of the loop, however many wait for one: their slices do not add up. A large object is begun with a turn.
"""

from __future__ import annotations

import time

from kube.turn import Turns

SLICE_SECONDS = 0.001
"""Time that the event loop is blocked at once, but for one object."""
SLICE_BYTES = 256 << 10
"""Bytes of objects that are gone through at once; to pass over as many takes a quarter of a millisecond."""
FIRST_BYTES = 64 << 10
"""Bytes that a request goes through before its first turn, as most do that ask for small objects."""

_turns = Turns()


async def turn() -> None:
    """Wait for a round of the event loop in which no other request has a turn."""
    await _turns.next()


class Pace:
    """The slices of one request, which may have several tasks."""

    __slots__ = ("_began", "_bytes")

    def __init__(self) -> None:
        self._began, self._bytes = time.perf_counter(), SLICE_BYTES - FIRST_BYTES

    async def step(self, size: int = 0) -> None:
        """Wait for a turn where the slice is over, or would be with an object of `size` bytes; call it before each object."""
        if self.over(size):
            await self.turn(size)

    def over(self, size: int = 0) -> bool:
        """Say whether the slice is over; the object counts to it where it is not."""
        self._bytes += size
        return self._bytes > SLICE_BYTES or time.perf_counter() - self._began > SLICE_SECONDS

    async def turn(self, size: int = 0) -> None:
        """Wait for a turn and begin a slice with an object."""
        await turn()
        self._began, self._bytes = time.perf_counter(), size
