"""Queue of the listening sockets of an event loop: limits the connections that all together accept in one iteration.

A process may listen on thousands of ports (health checks of Services). Were the limit that of each socket, a client that
connects to all of them would hold the loop for as long as all their connections take.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import WeakKeyDictionary

BATCH = 16
"""Connections accepted in one iteration of the loop: those that it cannot serve wait in the kernel's queues."""


class Accepting(Protocol):
    """A listening socket."""

    def accept(self, most: int) -> int:
        """Accept connections, and return how many there were."""


class AcceptQueue:
    """The listening sockets of one loop: each accepts immediately while the iteration has room, otherwise it is queued."""

    def __init__(self) -> None:
        self._room = BATCH
        self._waiting: dict[Accepting, None] = {}
        """Sockets for which there was no room, in the order in which they have had connections."""
        self._called = False

    def ask(self, listening: Accepting) -> None:
        """Have a socket accept in this or a later iteration."""
        if self._room and not self._waiting:
            self._room -= listening.accept(self._room)
        else:
            self._waiting.setdefault(listening)
        self._call()

    def leave(self, listening: Accepting) -> None:
        """Forget a socket that is closed."""
        self._waiting.pop(listening, None)

    def _call(self) -> None:
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._called, self._room = False, BATCH
        served = list(self._waiting)[:BATCH]
        for listening in served:
            if listening in self._waiting:  # it may have been closed meanwhile
                del self._waiting[listening]
                self._room -= listening.accept(BATCH // len(served))
        if self._room < BATCH or self._waiting:
            self._call()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, AcceptQueue] = WeakKeyDictionary()


def of_loop(loop: asyncio.AbstractEventLoop) -> AcceptQueue:
    """Return the turns of a loop."""
    return _of_loops.setdefault(loop, AcceptQueue())
