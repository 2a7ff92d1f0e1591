"""Compiles large roles and bindings in slices of the event loop's time, one after the other.

Compiling a role of 1.5 MiB, or the index of a binding's 36 000 subjects, takes about 100 ms. Until it is complete the
authorizer uses what was compiled of the object before, or nothing of a new one: the delay is like that of an informer. A
deletion takes effect at once. If an object changes again meanwhile, what was started is completed all the same, so that
frequent changes delay the newest state only by one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from control.event_loop.pacing import TimeSlice

T = TypeVar("T")
PIECE = 256
"""Texts or subjects of a piece, between which the event loop may continue: a fraction of a millisecond."""
Pieces = Generator[None, None, T]
"""Work that yields after each piece and returns its result."""
_Job = tuple[Callable[[], Pieces[Any]], Callable[[Any], None]]


def at_once(pieces: Pieces[T]) -> T:
    """Return the result of some work without an interruption."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_slices(pieces: Pieces[T]) -> T:
    """Return the result of some work that yields to the event loop when a time slice is over."""
    time_slice = TimeSlice()
    while True:
        await time_slice.step()
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result


class Compilation:
    """Queue of the objects to compile, by key: the newest state of each counts."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, _Job] = {}
        self._running: Hashable | None = None
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def put(self, key: Hashable, pieces: Callable[[], Pieces[T]], completed: Callable[[T], None]) -> None:
        """Compile an object when its turn comes, and pass the result to `completed` unless it is discarded before."""
        self._waiting[key] = (pieces, completed)
        self._idle.clear()
        self._changed.set()

    def discard(self, key: Hashable) -> None:
        """Forget an object, also if it is being compiled."""
        self._waiting.pop(key, None)
        if self._running == key:
            self._running = None

    async def run(self) -> None:
        """Compile what there is until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                await self._next()
            self._idle.set()

    async def _next(self) -> None:
        key = next(iter(self._waiting))
        pieces, completed = self._waiting.pop(key)
        self._running = key
        result = await in_slices(pieces())
        if self._running == key:
            completed(result)
        self._running = None

    async def settled(self) -> None:
        """Wait until nothing is left to compile; `run` has to be running."""
        await self._idle.wait()
