"""Work on large objects that is done beside the event loop, a turn for each user: by a helper process, or by one thread.

Decoding, comparing and validating an object of some hundred kilobytes takes up to half a second, during which the loop would
answer nobody: no health check, no node's lease. What needs nothing but bytes is done by the helper (control/helper). The
thread does what needs objects of this process; it shares the interpreter's lock with the loop, so a request on a new
connection takes some times longer while it works. A thread gives the lock up after 5 ms by default, and the loop takes it a
dozen times for such a request, so the interval is shorter meanwhile. Whoever sends many large objects waits behind everybody
else's first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from control import inline
from control.helper.client import Helper
from kube import errors

P = ParamSpec("P")
T = TypeVar("T")
LARGE = 32 * 1024
"""Bytes of an object from which on work on it is done by the thread; to go there and back costs 0.1 ms."""
HUGE = 1 << 20
"""Bytes of a list from which on it is written by the helper, which may have to start: that takes a quarter of a second."""
SWITCH_SECONDS = 0.0002
"""How long the thread may keep the interpreter's lock while the event loop wants it."""
_thread = ThreadPoolExecutor(1, "large-objects")


async def run(user: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns: called at once for an object of few bytes, by the thread at the user's turn for a large one.

    Work goes on to its end where the caller is cancelled meanwhile, and is not begun where it had to wait.
    """
    if size < LARGE:
        return work(*args, **kwargs)
    return await apart(user, work, *args, **kwargs)


async def evaluate(user: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, as `run`; where its expressions cost too much it is called again by the thread.

    So `work` changes nothing until all is evaluated, or the same each time.
    """
    if size < LARGE:
        with contextlib.suppress(inline.TooMuchHere):
            return inline.limited(partial(work, *args, **kwargs))
    return await apart(user, work, *args, **kwargs)


async def apart(user: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns when the thread has called it."""
    loop, done = asyncio.get_running_loop(), partial(work, *args, **kwargs)
    result: T = await _places().thread.run(user, lambda: loop.run_in_executor(_thread, _switching, done))
    return result


async def by_helper(user: str, job: str, *args: Any) -> Any:
    """Return what a job of control/helper/jobs.py returns, done at the user's turn by the helper process.

    Raises the job's StatusError, 504 for one that takes too long, HelperFailed where the process could not do it. A job whose
    caller is cancelled is not begun, or ends with the process.
    """
    places = _places()
    try:
        return await places.helper_turns.run(user, lambda: asyncio.ensure_future(places.helper.call(job, *args)))
    except TimeoutError:
        raise errors.timeout("request did not complete within the allotted timeout") from None


async def close() -> None:
    """End the helper process of this event loop."""
    places = _loops.get(asyncio.get_running_loop())
    if places is not None:
        await places.helper.close()


class _Turns:
    """Work that is done one at a time: users in the order of their turns, each with what they wait for."""

    def __init__(self, cancels: bool) -> None:
        self._waiting: dict[str, deque[tuple[asyncio.Future[Any], Callable[[], asyncio.Future[Any]]]]] = {}
        self._busy = False
        self._cancels = cancels
        """Whether work ends when nobody waits for it any more."""

    async def run(self, user: str, work: Callable[[], asyncio.Future[Any]]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append((future, work))
        self._begin()
        return await future

    def _begin(self) -> None:
        while self._waiting and not self._busy:
            user = next(iter(self._waiting))
            queue = self._waiting.pop(user)
            future, work = queue.popleft()
            if queue:
                self._waiting[user] = queue  # behind everybody else
            if not future.done():
                self._busy = True
                running = work()
                running.add_done_callback(partial(self._ended, future))
                if self._cancels:
                    future.add_done_callback(partial(_cancel_too, running))

    def _ended(self, future: asyncio.Future[Any], running: asyncio.Future[Any]) -> None:
        self._busy = False
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if future.done():
            pass  # who asked has gone
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(running.result())
        self._begin()


def _cancel_too(running: asyncio.Future[Any], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        running.cancel()


class _Places:
    """Where one event loop has work done."""

    def __init__(self) -> None:
        self.thread, self.helper_turns = _Turns(cancels=False), _Turns(cancels=True)
        self.helper = Helper()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Places] = weakref.WeakKeyDictionary()


def _places() -> _Places:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Places()
    return found


def _switching(work: Callable[[], Any]) -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return work()
    finally:
        sys.setswitchinterval(before)
