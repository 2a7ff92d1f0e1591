"""Work on large objects that is done outside the event loop, a turn for each user: by a helper process, or by one thread.

Decoding, comparing and validating an object of some hundred kilobytes takes up to half a second, during which the loop would
answer nobody: no health check, no node's lease. What needs nothing but bytes is done by the helper (control/server/helper). The
thread does what needs objects of this process; it shares the interpreter's lock with the loop, so a request on a new
connection takes some times longer while it works, with a short switch interval (switch_interval.py). Whoever has had much time
waits behind those who had less; the reads of one user, which are done in pieces, wait behind their writes.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from control.event_loop import helper_client, inline, weight
from control.event_loop.helper_client import Helper, HelperMissing
from control.event_loop.pacing import IterationBudget, yield_to_loop
from control.event_loop.switch_interval import switching
from control.event_loop.time_limit import Limited
from kube import errors
from kube.owners import owner_of

P = ParamSpec("P")
T = TypeVar("T")
_Job = tuple[asyncio.Future[Any], Callable[[], asyncio.Future[Any]]]
LARGE = weight.LARGE
YIELD_WEIGHT = 8 * 1024
"""Weight of an object from which on work on it here yields first if others have been worked on in the same iteration of the
event loop (control/event_loop/pacing.py): work on many requests' objects does not add up."""
HUGE = 1 << 20
"""Bytes of a list from which on it is written by the helper, which may have to start: that takes a quarter of a second."""
PIECE = 512 * 1024
"""Bytes of a list's objects that are written at one turn: a tenth of a second."""
WRITES_IN_A_ROW = 4
"""After so many writes a piece of a read has its turn, of users who have taken the same."""
JOB_SECONDS = helper_client.JOB_SECONDS
"""The longest that the thread works on an object for a request: as long as the helper."""
LEFT_SECONDS = 1.0
"""Time that the helper continues with an abandoned job."""
STOP_SECONDS = 0.5
"""Seconds that an aborted job costs its user besides its own time: the next one waits until there is a new process."""
MOST_USERS = 1024
"""Users whose time is kept although they wait for nothing."""
_thread = ThreadPoolExecutor(1, "large-objects")
_iteration = IterationBudget(LARGE)
"""Work on objects above YIELD_WEIGHT in an iteration: as much as on one object."""


async def run(user: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns: called here for an object of little weight, by the thread at the user's turn for a large one.

    Work goes on to its end where the caller is cancelled meanwhile, and is not begun where it had to wait. Raises 504 if it
    takes longer than JOB_SECONDS; so `work` changes nothing that others see before it is done.
    """
    if size < YIELD_WEIGHT:
        return work(*args, **kwargs)
    if size < LARGE:
        if not _iteration.take(size):
            await _yield(size)
        return work(*args, **kwargs)
    return await _limited(user, partial(work, *args, **kwargs))


async def evaluate(user: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, as `run`; where its expressions cost too much it is called again by the thread.

    So `work` changes nothing until all is evaluated, or the same each time.
    """
    if size < LARGE:
        if size >= YIELD_WEIGHT and not _iteration.take(size):
            await _yield(size)
        try:
            return inline.limited(work, *args, **kwargs)
        except inline.TooMuchHere:
            pass
    return await _limited(user, partial(work, *args, **kwargs))


async def _yield(size: int) -> None:
    await yield_to_loop()
    _iteration.count(size)


async def apart(user: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns when the thread has called it; raises 504, as `run`, where it takes too long."""
    return await _limited(user, partial(work, *args, **kwargs))


async def read(user: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work`, a piece of what a read takes, returns when the thread has called it: the user's writes go first.

    Raises 504, as `run`, where it takes too long.
    """
    return await _limited(user, partial(work, *args, **kwargs), reading=True)


async def complete(user: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns when the thread has called it, however long it takes.

    For work that changes an object in several steps or whose result nobody would request again, and whose cost is linear.
    """
    return await _by_thread(user, reading=False, work=partial(work, *args, **kwargs))


async def _limited(user: str, work: Callable[[], T], *, reading: bool = False) -> T:
    limited = Limited(work)
    return await _by_thread(user, reading=reading, work=limited, stop=limited.stop)


async def _by_thread(user: str, *, reading: bool, work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    loop = asyncio.get_running_loop()

    def begin() -> asyncio.Future[Any]:
        running = loop.run_in_executor(_thread, switching, work)
        if stop is not None:
            timer = loop.call_later(JOB_SECONDS, stop)
            running.add_done_callback(lambda _: timer.cancel())
        return running

    result: T = await _workers().thread_queue.run(user, begin, reading=reading)
    return result


async def by_helper(
    user: str, job: str, *args: Any, reading: bool = False, instead: Callable[[], Any] | None = None
) -> Any:
    """Return what a job of control/server/helper/jobs.py returns, done at the user's turn by the helper process.

    Raises the job's StatusError, 504 for one that takes too long, HelperFailed where the process could not do it. A job whose
    caller is cancelled is not begun; one that has begun ends with the process where it takes a second more. Where no process
    can be started the thread calls `instead`.
    """
    workers = _workers()
    try:
        return await workers.helper_queue.run(
            user, lambda: asyncio.ensure_future(workers.helper.call(job, *args)), reading=reading
        )
    except HelperMissing:
        if instead is None:
            raise
        return await _limited(user, instead)
    except TimeoutError:
        raise errors.timeout("request did not complete within the allotted timeout") from None


async def close() -> None:
    """End the helper process of this event loop."""
    workers = _loops.get(asyncio.get_running_loop())
    if workers is not None:
        await workers.helper.close()


class _FairQueue:
    """Work that is done one at a time: the user first whose work has taken the least time so far, reads and writes together.

    The service accounts of a namespace count as one user. A user's reads wait while there are writes of theirs, or of
    users who have taken the same, but now and then one is next.
    """

    def __init__(self, *, cancels: bool) -> None:
        self._waiting = tuple(dict[str, deque[_Job]]() for _ in ("writes", "reads"))
        self._busy = False
        self._cancels = cancels
        """True if abandoned work is stopped."""
        self._taken: dict[str, float] = {}
        """Seconds by user. Who comes again begins with the least of all: what was not used before is no credit."""
        self._least = 0.0
        self._writes_in_a_row = 0

    async def run(self, user: str, work: Callable[[], asyncio.Future[Any]], *, reading: bool = False) -> Any:
        user = owner_of(user)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[reading].setdefault(user, deque()).append((future, work))
        self._taken[user] = max(self._taken.get(user, 0.0), self._least)
        self._begin()
        return await future

    def _begin(self) -> None:
        while not self._busy and any(self._waiting):
            user, (future, work) = self._next()
            if not future.done():
                try:
                    running = work()
                except Exception as error:  # neither a thread nor a process can be started
                    future.set_exception(error)
                    continue
                self._busy = True
                running.add_done_callback(partial(self._ended, future, user, time.monotonic()))
                if self._cancels:
                    future.add_done_callback(partial(_cancel_too, running))

    def _next(self) -> tuple[str, _Job]:
        writes, reads = self._waiting
        writer, reader = (min(each, key=self._taken.__getitem__, default=None) for each in (writes, reads))
        first, user = self._first(writer, reader)
        self._writes_in_a_row = 0 if first is reads else self._writes_in_a_row + 1
        self._least = max(self._least, self._taken[user])
        queue = first[user]
        job = queue.popleft()
        if not queue:
            del first[user]
        return user, job

    def _first(self, writer: str | None, reader: str | None) -> tuple[dict[str, deque[_Job]], str]:
        """Choose between the one whose writes and the one whose reads have taken the least."""
        writes, reads = self._waiting
        if writer is None or reader is None:
            return (writes, writer) if writer is not None else (reads, reader or "")
        more = self._taken[writer] - self._taken[reader]
        reading = more > 0 or (more == 0 and self._writes_in_a_row >= WRITES_IN_A_ROW)
        return (reads, reader) if reading else (writes, writer)

    def _ended(self, future: asyncio.Future[Any], user: str, begun: float, running: asyncio.Future[Any]) -> None:
        self._busy = False
        taken = time.monotonic() - begun
        if running.cancelled() or isinstance(running.exception(), TimeoutError):
            taken += STOP_SECONDS
        self._taken[user] = self._taken.get(user, 0.0) + taken
        if len(self._taken) > MOST_USERS:
            self._forget()
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if future.done():
            pass  # who asked has gone
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(running.result())
        self._begin()

    def _forget(self) -> None:
        """Forget users who wait for nothing."""
        self._taken = {
            user: taken for user, taken in self._taken.items() if any(user in each for each in self._waiting)
        }


def _cancel_too(running: asyncio.Future[Any], future: asyncio.Future[Any]) -> None:
    """Cancel work whose caller has gone, unless it ends soon: a new process costs more than its answer."""
    if future.cancelled() and not running.done():
        stop = asyncio.get_running_loop().call_later(LEFT_SECONDS, running.cancel)
        running.add_done_callback(lambda _: stop.cancel())


class _Workers:
    """Thread and helper process of one event loop."""

    def __init__(self) -> None:
        self.thread_queue, self.helper_queue = _FairQueue(cancels=False), _FairQueue(cancels=True)
        self.helper = Helper()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Workers] = weakref.WeakKeyDictionary()


def _workers() -> _Workers:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Workers()
    return found
