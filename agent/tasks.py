"""Starts the agent's tasks, all in one task group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from kube import cancellation
from kube.loops import Loops


class Tasks:
    """`start` runs a task whose error ends the agent, `loop` one that is restarted after an error."""

    def __init__(self, group: asyncio.TaskGroup, loops: Loops) -> None:
        self._group, self._loops = group, loops

    def start(self, name: str, work: Coroutine[None, None, None]) -> None:
        # The group takes a cancelled task for one that has ended.
        self._group.create_task(cancellation.as_error(work), name=name)

    def loop(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._group.create_task(self._loops.run(name, work), name=name)
