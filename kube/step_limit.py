"""Limits how long work may hold the event loop: each step, from one wait of its task to the next, has so much CPU time.

A step that takes longer is stopped: an exception is raised inside it, which becomes StepTooLong. Otherwise one request, or one
object of somebody's, for which some code costs more than was thought of would stop the daemon for all. Whoever has long steps
often waits before the next one, so that others have most of the loop's time.

Work of many short steps holds the loop as long as one long step. With `every_step` of its `Shares` the CPU time of each step is
charged to the owner, and with `fair` steps that become runnable together are spread over iterations (kube/fair_steps.py).

A timer of the thread's own CPU time (kube/cpu_timer.py) samples which step is under way; so an idle daemon is never woken,
and a machine that is busy with other things shortens nobody's time. The interpreter runs signal handlers in the main thread
alone and between two of its instructions: only a loop of the main thread is watched, a call of C code goes on to its end
(but those of `re`, which look for signals), and a step that has ended cannot be stopped by mistake. Every daemon runs the
timer (kube/serving/daemon.py).

The exception may come anywhere in the work, also while it changes what others see in memory. What has to be whole is done by
a task of its own (control/registry/outcome.py), which nothing stops from its first effect on (`complete`), or does so little
that it is not hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from kube.cpu_timer import CpuTimer
from kube.fair_steps import FairSteps, StepsOfLoop
from kube.step_shares import Shares
from kube.steps import Step, stepwise

A = TypeVar("A")
T = TypeVar("T")

TICK = 0.05
"""Seconds of CPU time between two samples. A step is long if it is under way at two of them."""


class StepTooLong(Exception):
    """A step of the work took longer than its limit and was stopped."""


class OwnerStopped(StepTooLong):
    """A step of other work of the same owner was stopped: this work does not continue."""


class _Stop(BaseException):
    """Raised inside of a step; no Exception, which the work might continue after."""


class Limit:
    """Limit of one piece of work, which has one step under way at a time; the owner may become known later.

    With `completes` the work decides from when on, or meanwhile, its steps are charged but not stopped (`complete`, `whole`).
    `every_step` may be set to False for an owner that works for others: only its long steps are charged. With `spread` short
    steps wait for each other as those of `fair` do, measured by a clock that costs less, and are not charged.
    With `pauses` the work ends with OwnerStopped at its next step once another step of the owner was stopped: otherwise all
    that had begun before would take the time of a stopped step, one after the other.
    """

    __slots__ = (
        "_began",
        "_completes",
        "_inner",
        "_last",
        "_since",
        "every_step",
        "owner",
        "pauses",
        "shares",
        "spread",
        "stopped",
        "stops",
    )

    def __init__(
        self,
        shares: Shares,
        owner: str = "",
        *,
        completes: bool = False,
        spread: FairSteps | None = None,
        pauses: bool = False,
    ) -> None:
        self.shares, self.owner, self.spread, self.pauses = shares, owner, spread, pauses
        self._completes = completes
        self._began = time.monotonic() if pauses else 0.0
        self.every_step = shares.every_step
        self.stops = True
        self._inner = 0.0
        """CPU time of the limited steps inside of the running one, which are counted themselves."""
        self._since = self._last = 0.0
        """CPU time of the thread at the first and last sample of the step; 0: there was none yet."""
        self.stopped = False

    def run(self, step: Step, argument: Any) -> Any:
        """Return what a step returns; raises StepTooLong if it was stopped."""
        outside, self._since = _current.limit, 0.0
        try:
            _current.limit = self
            try:
                return step(argument)
            finally:
                _current.limit = outside
                argument = None  # see `stepwise`
        except _Stop:
            _current.limit = outside  # it may have come just before
            if not self.stopped:
                raise  # the step of the work outside is the one that took too long
            raise StepTooLong("a step held the event loop too long and was stopped") from None

    def run_counted(self, step: Step, argument: Any) -> Any:
        """Return what a step returns, and count its time; raises StepTooLong if it was stopped."""
        outside, began = _current.limit, time.thread_time()
        self._inner = 0.0
        try:
            return self.run(step, argument)
        finally:
            argument = None  # see `stepwise`
            taken = time.thread_time() - began
            if outside is not None:
                outside._inner += taken
            self.shares.count(self.owner, taken - self._inner, every_step=self.every_step)

    def sample(self, now: float) -> None:
        """Note that the step is under way at a time of the thread's CPU clock; raises where it takes too long."""
        if not self._since:
            self._since = self._last = now
            return
        taken, self._last = now - self._last, now
        too_long = self.stops and now - self._since >= self.shares.seconds
        self.shares.charge(self.owner, taken, stopped=too_long, every_step=self.every_step)
        if too_long:
            self._since, self.stopped = 0.0, True  # what the work does while the exception passes is a step of its own
            raise _Stop

    def check(self) -> None:
        """Raise OwnerStopped, once, if other work of the owner was stopped since this began; not while it has to be whole."""
        if self.pauses and self.stops and self.shares.has_stopped_since(self.owner, self._began):
            self.pauses = False
            raise OwnerStopped("another step of the same owner held the event loop too long")

    def keep_whole(self, whole: bool) -> None:  # noqa: FBT001 - what `stops` is set to
        """Stop no step any more, or again, if the work may decide that."""
        self.stops = not (whole and self._completes)


class _Current:
    """The running step of the main thread."""

    limit: Limit | None = None


_current = _Current()


def limited_call(shares: Shares, owner: str, work: Callable[[A], T], argument: A) -> T:
    """Return what `work` returns, limited as one step of its owner; raises StepTooLong. In another thread nothing limits it.

    The caller decides what an owner's work waits for, or where else it runs, while `shares.delay` is above 0.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(argument)
    result: T = Limit(shares, owner).run(work, argument)
    return result


def limited(work: Coroutine[Any, Any, T], limit: Limit) -> Awaitable[T]:
    """Return what `work` returns, each of its steps limited; raises StepTooLong if one was stopped.

    Inside of other limited work the inner limit counts.
    """
    fair, spread = limit.shares.fair, limit.spread
    if spread is not None:
        return _spread(work, limit, spread.here())
    if fair is None:
        return stepwise(work, limit.run, limit.check if limit.pauses else None)

    def wait() -> asyncio.Future[None] | None:
        limit.check()
        return fair.wait(limit.owner)

    return stepwise(work, limit.run_counted, wait)


def _spread(work: Coroutine[Any, Any, T], limit: Limit, steps: StepsOfLoop) -> Awaitable[T]:
    clock, owner = time.perf_counter, limit.owner

    def run(step: Step, argument: Any) -> Any:
        began = clock()
        try:
            return limit.run(step, argument)
        finally:
            argument = None  # see `stepwise`
            steps.count(clock() - began)

    return stepwise(work, run, lambda: steps.wait(owner))


def inherited(work: Coroutine[Any, Any, T], *, completes: bool = False) -> Coroutine[Any, Any, T]:
    """Return `work` for a new task, with a limit of the same shares and owner as that of the running step, if it has one."""
    current = _current.limit
    if current is None:
        return work
    limit = Limit(current.shares, current.owner, completes=completes)
    limit.every_step = current.every_step
    return _awaited(limited(work, limit))


def complete() -> None:
    """Let the running work go on to its end, whose long steps are charged from here on and not stopped."""
    if _current.limit is not None:
        _current.limit.keep_whole(True)


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Charge and do not stop the running work's long steps meanwhile."""
    limit = _current.limit
    if limit is None or not limit.stops:
        yield
        return
    limit.keep_whole(True)
    try:
        yield
    finally:
        limit.keep_whole(False)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


unstopped: set[types.CodeType] = set()
"""Code of functions that C calls: an exception that is raised in them is lost. A later sample stops the step."""


def _sample(number: int, frame: types.FrameType | None) -> None:
    limit = _current.limit
    if limit is not None and (frame is None or frame.f_code not in unstopped):
        limit.sample(time.thread_time())


class _Sampling:
    users = 0
    timer: CpuTimer | None = None


@contextlib.contextmanager
def sampling() -> Iterator[None]:
    """Sample the steps of the main thread's loop meanwhile; in another thread nothing is limited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Sampling.users += 1
    if _Sampling.users == 1:
        signal.signal(signal.SIGPROF, _sample)
        signal.siginterrupt(signal.SIGPROF, False)  # system calls that libraries make begin again
        _Sampling.timer = CpuTimer(TICK)
        _Sampling.timer.start()
    try:
        yield
    finally:
        _Sampling.users -= 1
        if not _Sampling.users and _Sampling.timer is not None:
            _Sampling.timer.close()
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
