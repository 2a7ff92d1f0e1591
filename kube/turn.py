"""Gives the event loop back during work that others should not have to wait for.

Where many do such work, one of them has a turn in a round of the loop: what they do does not add up.
"""

from __future__ import annotations

import asyncio
import weakref


class Turns:
    """Turns of all who share them, on each event loop."""

    def __init__(self) -> None:
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def next(self) -> None:
        """Wait for a round of the event loop in which nobody else has a turn."""
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)
