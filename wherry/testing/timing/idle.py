"""Detection that an event loop is idle: nothing is ready to run, and no other thread works for it.

asyncio has no call for this. Its loops ask their selector for events with a timeout other than 0 exactly when nothing is ready,
so the selector's `select` is replaced while the cluster runs, and so is `run_in_executor`, to count what threads do. Work that
neither shows, such as requests in progress, is what `busy` reports. Timers of the event loop itself do not count: they are time
limits of real connections and processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import msgspec

from wherry.testing.errors import ClusterError

BUSY_SECONDS = 60.0
"""Real time after which a cluster that is still busy is an error."""


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    idle: asyncio.Future[None]
    quiet: float
    deadline: float


class IdleDetector:
    """Callers of `wait` continue one by one, each when the loop is idle again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._selector = loop, getattr(loop, "_selector", None)
        if not callable(getattr(self._selector, "select", None)):
            raise ClusterError(
                f"virtual time needs an event loop of asyncio with a selector, not {type(loop).__name__}"
            )
        self._waiting: list[_Waiter] = []
        self._in_threads = 0
        self.busy: Callable[[], bool] = lambda: False

    async def wait(self, quiet: float = 0.0) -> None:
        """Return when the loop is idle, and has been for `quiet` seconds of real time. Raise ClusterError if it stays busy."""
        waiter = _Waiter(self._loop.create_future(), quiet, time.monotonic() + BUSY_SECONDS)
        self._waiting.append(waiter)
        try:
            await waiter.idle
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Observe the loop while the block runs."""
        selector: Any = self._selector
        loop: Any = self._loop
        select, run_in_executor = selector.select, loop.run_in_executor

        def selected(timeout: float | None = None) -> Any:
            if timeout is not None and timeout <= 0:
                return select(timeout)
            if not self._waiting:
                return select(timeout)
            waiter = self._waiting[0]
            found = select(0)
            if found:
                return found
            if self._in_threads or self.busy():
                return self._while_busy(select, timeout, waiter)
            if waiter.quiet:
                pause = waiter.quiet if timeout is None else min(timeout, waiter.quiet)
                found = select(pause)
                if found or pause < waiter.quiet:
                    return found
            self._waiting.pop(0).idle.set_result(None)
            return []

        def counted(executor: Executor | None, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = run_in_executor(executor, function, *args)
            self._in_threads += 1
            future.add_done_callback(self._thread_done)
            return future

        selector.select, loop.run_in_executor = selected, counted
        try:
            yield
        finally:
            del selector.select, loop.run_in_executor

    def _while_busy(self, select: Callable[[float], Any], timeout: float | None, waiter: _Waiter) -> Any:
        left = waiter.deadline - time.monotonic()
        if left > 0:
            return select(left if timeout is None else min(timeout, left))
        self._waiting.remove(waiter)
        message = f"virtual time cannot pass: a request or a thread has worked for {BUSY_SECONDS:g} s of real time"
        waiter.idle.set_exception(ClusterError(message))
        return []

    def _thread_done(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1
