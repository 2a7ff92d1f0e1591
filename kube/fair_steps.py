"""Fair queueing of the steps of tasks that belong to several owners: a limited CPU time in each iteration of the event loop.

Tasks that become runnable together (probes that are due at once, pods that name one changed object) would all have their
step before the loop handles anything else. Once steps have taken their time, further ones wait. Each later iteration
continues one or a few of them, round robin over their owners.
"""

from __future__ import annotations

import asyncio
import weakref

from kube.waiters import Waiters


class FairSteps:
    """Steps that may take `seconds` of CPU time in an iteration of each event loop, and one more step.

    Of those that wait `most` continue in an iteration.
    """

    def __init__(self, seconds: float, most: int = 1) -> None:
        self._seconds, self._most = seconds, most
        self._last: tuple[asyncio.AbstractEventLoop | None, _Steps] = None, _Steps(most)
        """Those of the loop that used this last; a look-up costs as much as all else here."""
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Steps] = weakref.WeakKeyDictionary()

    def wait(self, owner: str) -> asyncio.Future[None] | None:
        """Return what an owner's step waits for; None if it may run now."""
        steps = self._of_running_loop()
        if steps.spent < self._seconds and not steps.waiting:
            return None
        return steps.queue(owner)

    def count(self, seconds: float) -> None:
        """Count the CPU time of a step that has run."""
        steps = self._of_running_loop()
        steps.spent += seconds
        if steps.spent >= self._seconds:
            steps.renew_later()

    def _of_running_loop(self) -> _Steps:
        loop = asyncio.get_running_loop()
        last, steps = self._last
        if loop is not last:
            steps = self._loops.setdefault(loop, _Steps(self._most))
            self._last = loop, steps
        return steps


class _Steps:
    """The time that steps on one event loop have taken since it was renewed, and the steps that wait."""

    __slots__ = ("_most", "_renews", "spent", "waiting")

    def __init__(self, most: int) -> None:
        self._most, self.spent, self._renews = most, 0.0, False
        self.waiting = Waiters(newest=False)

    def queue(self, owner: str) -> asyncio.Future[None]:
        """Return a future that is done when a step of the owner's may run."""
        self.renew_later()
        return self.waiting.add(owner)

    def renew_later(self) -> None:
        """Allow further steps from the next iteration on."""
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Allow further steps; those of waiters are in the next iteration."""
        self.spent, self._renews = 0.0, False
        for _ in range(self._most):
            if not self.waiting.wake():
                break
        if self.waiting:
            self.renew_later()
