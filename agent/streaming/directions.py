"""Runs the two directions of a session until either ends.

Each direction is a task of its own; its steps have the step limit of the request that began the session and count for the same
user. A client that aborts the connection is an ordinary end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from kube.step_limit import StepTooLong, inherited

log = logging.getLogger(__name__)


async def run_until_first_ends(**directions: Coroutine[None, None, None]) -> None:
    """Run the directions, by their tasks' names, until one ends; cancel the other."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(inherited(work), name=name) for name, work in directions.items()]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    except* OSError as lost:
        log.debug("a session's connection was lost: %s", lost.exceptions[0])
    except* StepTooLong as long:
        log.warning("a session was closed: %s", long.exceptions[0])
