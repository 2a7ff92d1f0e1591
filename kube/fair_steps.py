"""Fair queueing of the steps of tasks that belong to several owners: a limited CPU time in each iteration of the event loop.

Tasks that become runnable together (probes that are due at once, pods that name one changed object) would all have their step
before the loop handles anything else. Once the steps of an iteration have taken their time, further ones wait: one of them
continues in each later iteration, round robin over their owners. Work that takes less never waits.
"""

from __future__ import annotations

import asyncio
import weakref

from kube.waiters import Waiters


class FairSteps:
    """Steps that may take `seconds` of CPU time in an iteration of each event loop, and one more step."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Iteration] = weakref.WeakKeyDictionary()

    def wait(self, owner: str) -> asyncio.Future[None] | None:
        """Return what an owner's step waits for; None if it may run now."""
        current = self._current()
        if current.spent < self._seconds and not current.waiting:
            return None
        return current.queue(owner)

    def count(self, seconds: float) -> None:
        """Count the CPU time of a step that has run in this iteration."""
        self._current().count(seconds)

    def _current(self) -> _Iteration:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = _Iteration()
        return found


class _Iteration:
    """The time that steps have taken in the current iteration of one event loop, and the steps that wait for a later one."""

    __slots__ = ("_renews", "spent", "waiting")

    def __init__(self) -> None:
        self.spent, self._renews = 0.0, False
        self.waiting = Waiters(newest=False)

    def queue(self, owner: str) -> asyncio.Future[None]:
        """Return a future that is done when a step of the owner's may run."""
        self._renew_later()
        return self.waiting.add(owner)

    def count(self, seconds: float) -> None:
        """Count the CPU time of a step."""
        self.spent += seconds
        self._renew_later()

    def _renew_later(self) -> None:
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Begin an iteration; the waiter that continues has its step in the one after it."""
        self.spent, self._renews = 0.0, False
        self.waiting.wake()
        if self.waiting:
            self._renew_later()
