"""Event loops in virtual time and one thread, in an order that follows from the seed.

Each simulated process has an event loop of its own, as a real one has: asyncio's promise that callbacks run in the order of
`call_soon` holds within a process, and production code relies on it. Random are the process whose loop does its next
iteration, the order of timers of one moment, and the duration of work that production code gives to threads. Virtual time
passes only when no loop has anything to run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")
THREAD_SECONDS = (0.0001, 0.002)
"""Shortest and longest time of work in a thread."""
ITERATION_SECONDS = 1e-6
"""Time of an iteration: code that waits for a moment in the next microsecond would else wait for ever."""
_numbers = itertools.count()


class Deadlock(Exception):
    """Nothing is ready to run, and nothing ever will be."""


class Stopped(Exception):
    """The run was stopped."""


class _Future(asyncio.Future[Any]):
    """A future whose place in a set follows from the order in which futures were created, not from its address."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _Task(asyncio.Task[Any]):
    """A task, likewise."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _NoServer:
    """The listening socket of a simulated process: nobody connects to it."""

    sockets = ()

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def is_serving(self) -> bool:
        return True


class Scheduler:
    """Runs the event loops of all processes. Virtual time begins at 0."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.seconds, self.iterations = rng, 0.0, 0
        self.stopped = False
        """Set it to end the run before its time."""
        self._ready: dict[ProcessLoop, None] = {}
        """Loops that have something to run."""
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle, ProcessLoop]] = []
        """Of all loops: time, a random number for the order at that time, and a unique one."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until a coroutine, in a loop of its own, has ended; return its result. Raise Deadlock, Stopped."""
        task = ProcessLoop(self).create_task(main)
        ready, timers = self._ready, self._timers
        while not task.done():
            if self.stopped:
                raise Stopped
            if not ready or (timers and timers[0][0] <= self.seconds):
                self._advance()
                continue
            self.seconds += ITERATION_SECONDS
            loop = next(iter(ready)) if len(ready) == 1 else self.rng.choice(list(ready))
            self.iterations += 1
            if not loop.iterate():
                ready.pop(loop, None)
        return task.result()

    def mark(self, loop: ProcessLoop) -> None:
        """Run a loop soon, unless it is paused."""
        if loop.paused_until <= self.seconds:
            self._ready[loop] = None

    def wake(self, when: float, timer: asyncio.TimerHandle, loop: ProcessLoop) -> None:
        """Run a timer of a loop at its time."""
        heapq.heappush(self._timers, (when, self.rng.random(), next(_numbers), timer, loop))

    def pause(self, loop: ProcessLoop, seconds: float) -> None:
        """Run nothing of a loop for a while."""
        loop.paused_until = self.seconds + seconds
        self._ready.pop(loop, None)
        self.wake(loop.paused_until, asyncio.TimerHandle(0, lambda: None, (), loop), loop)

    def stop(self, loop: ProcessLoop) -> None:
        """Run nothing of a loop any more."""
        loop.paused_until = float("inf")
        self._ready.pop(loop, None)

    def _advance(self) -> None:
        """Add the timers that are due to their loops, and move to the time of the next one if nothing is ready."""
        timers = self._timers
        while timers and (timers[0][3].cancelled() or timers[0][4].paused_until == float("inf")):
            heapq.heappop(timers)
        if not self._ready:
            if not timers:
                raise Deadlock
            self.seconds = max(self.seconds, timers[0][0])
        while timers and timers[0][0] <= self.seconds:
            _, _, _, timer, loop = heapq.heappop(timers)
            if not timer.cancelled():
                loop.add(timer)


class ProcessLoop(base_events.BaseEventLoop):
    """The event loop of a process."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.paused_until = 0.0
        self._queue: deque[asyncio.Handle] = deque()
        self.set_task_factory(lambda loop, work, **options: _Task(work, loop=loop, **options))

    def time(self) -> float:
        return self.scheduler.seconds

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    # -- callbacks ------------------------------------------------------------------------------------------------------
    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.add(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self.scheduler.wake(when, timer, self)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.scheduler.seconds + max(0.0, delay), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def add(self, handle: asyncio.Handle) -> None:
        """Run a callback in the next iteration."""
        self._queue.append(handle)
        self.scheduler.mark(self)

    def iterate(self) -> bool:
        """Run what is ready, and no more: as one iteration of asyncio's loops. Return whether there is more."""
        queue = self._queue
        events._set_running_loop(self)
        try:
            for _ in range(len(queue)):
                handle = queue.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)
        return bool(queue) and self.paused_until <= self.scheduler.seconds

    # -- threads ------------------------------------------------------------------------------------------------------
    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function later, in this thread."""
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except StopIteration as error:  # no exception of a future
                future.set_exception(RuntimeError(str(error)))
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.scheduler.rng.uniform(*THREAD_SECONDS), call)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor."""

    # -- sockets and signals: there are none ----------------------------------------------------------------------------
    async def create_server(self, *args: Any, **options: Any) -> Any:
        return _NoServer()

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Nothing is ever readable."""

    def remove_reader(self, fd: Any) -> bool:
        return False

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """No signal comes."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def _write_to_self(self) -> None: ...
