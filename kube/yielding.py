"""Yields to the event loop during work that would block others.

If many tasks do such work, one of them continues in each iteration of the loop: their work does not add up.
"""

from __future__ import annotations

import asyncio
import weakref


class LoopYield:
    """Shared by tasks of which one continues in each iteration, on each event loop."""

    def __init__(self) -> None:
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def wait(self) -> None:
        """Wait for an iteration of the event loop in which no other waiting task continues."""
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)
