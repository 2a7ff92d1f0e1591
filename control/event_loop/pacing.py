"""Yields to the event loop during work on many objects, which would block all other requests.

A request works for a time slice: about a millisecond, or some objects' bytes. Then it yields, and one request continues in an
iteration of the loop, however many wait: their slices do not add up. A large object begins a slice.
"""

from __future__ import annotations

import asyncio
import time

from kube.yielding import LoopYield

SLICE_SECONDS = 0.001
"""Time that the event loop is blocked at once, but for one object."""
SLICE_BYTES = 256 << 10
"""Bytes of objects that are gone through at once; to pass over as many takes a quarter of a millisecond."""
FIRST_BYTES = 64 << 10
"""Bytes that a request goes through before it yields first, as most do that request small objects."""

_loop_yield = LoopYield()


async def yield_to_loop() -> None:
    """Wait for an iteration of the event loop in which no other request continues."""
    await _loop_yield.wait()


class IterationBudget:
    """Limit on what is done at once in an iteration of the event loop, by all requests together; what exceeds it yields."""

    def __init__(self, most: int) -> None:
        self._most, self._spent = most, 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, size: int) -> bool:
        """Return whether so much may be done in this iteration, and count it if so."""
        if self._spent + size <= self._most or self._loop is not asyncio.get_running_loop():
            self.count(size)
            return True
        return False

    def count(self, size: int) -> None:
        """Count what is done in this iteration in any case."""
        loop = asyncio.get_running_loop()
        if not self._spent or self._loop is not loop:
            self._loop, self._spent = loop, 0
            loop.call_soon(self._renew)
        self._spent += size

    def _renew(self) -> None:
        self._spent = 0


class TimeSlice:
    """The time slices of one request, which may have several tasks."""

    __slots__ = ("_began", "_bytes")

    def __init__(self) -> None:
        self._began, self._bytes = time.perf_counter(), SLICE_BYTES - FIRST_BYTES

    async def step(self, size: int = 0) -> None:
        """Yield if the slice is over, or would be with an object of `size` bytes; call it before each object."""
        if self.over(size):
            await self.turn(size)

    def over(self, size: int = 0) -> bool:
        """Return whether the slice is over; the object counts to it where it is not."""
        self._bytes += size
        return self._bytes > SLICE_BYTES or time.perf_counter() - self._began > SLICE_SECONDS

    async def turn(self, size: int = 0) -> None:
        """Yield and begin a slice with an object."""
        await yield_to_loop()
        self._began, self._bytes = time.perf_counter(), size


class ServerSlice(TimeSlice):
    """The time slices of a task of the server that requests wait for: it continues in the next iteration of the loop."""

    __slots__ = ()

    def begin(self) -> None:
        """Begin a slice, after the task has waited for something else."""
        self._began, self._bytes = time.perf_counter(), 0

    async def turn(self, size: int = 0) -> None:
        """Let everything that is runnable have its step, and begin a slice with an object."""
        await asyncio.sleep(0)
        self._began, self._bytes = time.perf_counter(), size
