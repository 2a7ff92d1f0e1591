"""Simulated processes: each has an event loop, and ends in the middle of whatever it does when it is killed.

A killed process runs nothing any more, no `finally` and no handler. Its coroutines are kept until the run ends, because Python
would otherwise run their `finally` blocks when it collects them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from simulation.event_loop import ProcessLoop, Scheduler

T = TypeVar("T")


class Process:
    """One process, from its start to its end."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name, self.alive, self._scheduler = name, True, scheduler
        self.loop = ProcessLoop(scheduler)
        _processes[self.loop] = self
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_end: dict[int, Callable[[], None]] = {}
        self._callbacks = 0

    def start(self, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        task: asyncio.Task[T] = self.loop.create_task(work, name=name or self.name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def on_end(self, callback: Callable[[], None]) -> Callable[[], object]:
        """Call a function when the process is killed, outside of it. Return what revokes that."""
        self._callbacks += 1
        number = self._callbacks
        self._on_end[number] = callback
        return partial(self._on_end.pop, number, None)

    def pause(self, seconds: float) -> None:
        """Run nothing of the process for a while."""
        self._scheduler.pause(self.loop, seconds)

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        self._scheduler.stop(self.loop)
        _killed.append(self)
        callbacks, self._on_end = self._on_end, {}
        for callback in callbacks.values():
            callback()


_processes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Process] = weakref.WeakKeyDictionary()
_killed: list[Process] = []
"""Kept so that their coroutines are not collected."""


def current() -> Process | None:
    """Return the process that runs; None outside of processes."""
    return _processes.get(asyncio.get_running_loop())


def forget_killed() -> None:
    """Drop the killed processes after a run."""
    _killed.clear()
