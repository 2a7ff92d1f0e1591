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

    Of those that wait `most` continue in an iteration, fewer if steps of the last one were so long that these exceed `seconds`.
    """

    def __init__(self, seconds: float, most: int = 1) -> None:
        self._seconds, self._most = seconds, most
        self._last: tuple[asyncio.AbstractEventLoop | None, StepsOfLoop] = None, StepsOfLoop(seconds, most)
        """Those of the loop that used this last; a look-up costs as much as all else here."""
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, StepsOfLoop] = weakref.WeakKeyDictionary()

    def wait(self, owner: str) -> asyncio.Future[None] | None:
        """Return what an owner's step waits for; None if it may run now."""
        return self.here().wait(owner)

    def room(self) -> float:
        """Return the seconds that steps of this iteration may still take; 0 if steps wait."""
        return self.here().room()

    def count(self, seconds: float) -> None:
        """Count the CPU time of a step that has run."""
        self.here().count(seconds)

    def here(self) -> StepsOfLoop:
        """Return the steps of the running event loop, for callers that would look them up often."""
        loop = asyncio.get_running_loop()
        last, steps = self._last
        if loop is not last:
            steps = self._loops.setdefault(loop, StepsOfLoop(self._seconds, self._most))
            self._last = loop, steps
        return steps


class StepsOfLoop:
    """The time that steps on one event loop have taken since it was renewed, and the steps that wait."""

    __slots__ = ("_free", "_longest", "_most", "_renewed_from", "_renews", "_seconds", "_spent", "_waiting")

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds, self._most, self._renews = seconds, most, False
        self._renewed_from = seconds / 8
        """Time from which the next iteration begins with none: most take less, and need no call of the event loop."""
        self._spent = self._longest = 0.0
        self._free = seconds > 0
        """True if a step may run now: not all time has been taken, and none waits."""
        self._waiting = Waiters(newest=False)

    def wait(self, owner: str) -> asyncio.Future[None] | None:
        """Return what an owner's step waits for; None if it may run now."""
        if self._free:
            return None
        self._renew_later()
        return self._waiting.add(owner)

    def room(self) -> float:
        """Return the seconds that steps of this iteration may still take; 0 if steps wait."""
        return self._seconds - self._spent if self._free else 0.0

    def count(self, seconds: float) -> None:
        """Count the CPU time of a step that has run."""
        self._spent += seconds
        if seconds > self._longest:
            self._longest = seconds
        if self._spent >= self._renewed_from:
            self._renew_later()
            if self._spent >= self._seconds:
                self._free = False

    def _renew_later(self) -> None:
        """Allow further steps from the next iteration on."""
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Allow further steps; those of waiters are in the next iteration."""
        longest = self._longest
        most = self._most if longest * self._most <= self._seconds else max(1, int(self._seconds / longest))
        self._spent, self._longest, self._renews = 0.0, 0.0, False
        for _ in range(most):
            if not self._waiting.wake():
                break
        if self._waiting:
            self._renew_later()
        self._free = self._seconds > 0 and not self._waiting
