"""Yields to the event loop during long work: a server computes causes too, and its other requests and its end wait for them."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005


class TimeSlice:
    """The time slices of one computation."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def step(self) -> None:
        """Yield if the slice is over; call it before each part of the work, of some microseconds."""
        if time.perf_counter() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
