"""Tasks by key: for each key at most one task at a time, concurrently with those of other keys.

Calls to a driver that does not answer block for minutes. With a key for each driver they block nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kube import cancellation

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]
Begin = Callable[[str, Work], None]
"""KeyedTasks.begin."""


class KeyedTasks:
    """The tasks of one loop, which closes them at its end."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, key: str, work: Work) -> None:
        """Begin work unless that of the key is under way."""
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._run(key, work), name=key)

    async def _run(self, key: str, work: Work) -> None:
        try:
            await cancellation.as_error(work())
        except Exception:
            log.exception("%s failed", key)
        finally:
            del self._tasks[key]

    async def settle(self, seconds: float) -> None:
        """Wait until all have ended, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    async def close(self) -> None:
        """Cancel all."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
