"""Named tasks of the subsystems, and helpers that start and repeat them.

A loop that can start anew at any time is restarted after an unexpected error (kube/loops.py), and /metrics reports which run.
An error of any other task ends the process, which its supervisor starts again; rules and routes stay in force meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from kube import cancellation
from kube.clock import Clock
from kube.loops import Loops
from kube.process import CommandError
from netproxy.errors import ConfigError, WriteError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A name and the work; an error ends the process unless the work `restarts`."""

    name: str
    work: Callable[[], Awaitable[None]]
    restarts: bool = True


def start(group: asyncio.TaskGroup, tasks: Iterable[Task], clock: Clock) -> None:
    """Start tasks. A ConfigError ends the process in any case."""
    loops = Loops(clock, fatal=(ConfigError,))
    for task in tasks:
        if task.restarts:
            group.create_task(loops.run(task.name, task.work), name=task.name)
        else:
            cancellation.start(group, task.work, task.name)


async def repeat(check: Callable[[], Awaitable[object]], period: float, clock: Clock, failure: str) -> None:
    """Call `check` each period (seconds) until cancelled; log `failure` where the kernel refuses something."""
    while True:
        await clock.sleep(period)
        try:
            await check()
        except (WriteError, CommandError, OSError) as error:
            log.error("%s: %s", failure, error)
