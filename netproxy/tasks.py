"""Named tasks of the subsystems, and helpers that start and repeat them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from kube.clock import Clock
from kube.process import CommandError
from netproxy.errors import WriteError

log = logging.getLogger(__name__)
Task = tuple[str, Coroutine[Any, Any, None]]
"""A name and the work."""


def start(group: asyncio.TaskGroup, tasks: Iterable[Task]) -> None:
    for name, work in tasks:
        group.create_task(work, name=name)


async def repeat(check: Callable[[], Awaitable[object]], period: float, clock: Clock, failure: str) -> None:
    """Call `check` each period (seconds) until cancelled; log `failure` where the kernel refuses something."""
    while True:
        await clock.sleep(period)
        try:
            await check()
        except (WriteError, CommandError) as error:
            log.error("%s: %s", failure, error)
