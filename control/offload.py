"""Work on large objects that one thread does beside the event loop, a turn for each user.

Decoding, comparing and validating an object of some hundred kilobytes takes up to half a second, during which the loop would
answer nobody: no health check, no node's lease. There is one thread, since more would only share the interpreter's lock with
the loop; whoever sends many large objects waits behind everybody else's first one. A thread gives the lock up after 5 ms by
default, and the loop takes it a dozen times for one request on a new connection, so the interval is shorter meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
LARGE = 32 * 1024
"""Bytes of an object from which on work on it is done by the thread; to go there and back costs 0.1 ms."""
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


async def apart(user: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns when the thread has called it."""
    result: T = await _turns().run(user, partial(work, *args, **kwargs))
    return result


class _Turns:
    """The thread's work for one event loop: users in the order of their turns, each with what they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[asyncio.Future[Any], Callable[[], Any]]]] = {}
        self._busy = False

    async def run(self, user: str, work: Callable[[], Any]) -> Any:
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
                running = asyncio.get_running_loop().run_in_executor(_thread, _switching, work)
                running.add_done_callback(partial(self._ended, future))

    def _ended(self, future: asyncio.Future[Any], running: asyncio.Future[Any]) -> None:
        self._busy = False
        error = running.exception()
        if future.done():
            pass  # who asked has gone
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(running.result())
        self._begin()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = weakref.WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Turns()
    return found


def _switching(work: Callable[[], Any]) -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return work()
    finally:
        sys.setswitchinterval(before)
