"""Timeout of work that depends on this process's event loop: time in which the loop did not run does not count.

A response that arrives while the event loop is blocked is handled after the loop's timers: with an ordinary timeout the work
would fail for a delay that is not the other side's. A timer measures short spans instead. One that ends late counts with its
own length, and after it the work has another span, in which it handles what has arrived.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

SPAN, SPANS = 0.05, 20
"""Seconds that are measured at a time at least; spans of a longer timeout."""
LATE = 0.02
"""Delay of a timer in seconds with which the loop was blocked."""
LONGEST = 10.0
"""Maximum duration of the work, as a multiple of its timeout."""


class LoopTimeout:
    """A timeout in seconds of all blocks together that it is the context of; the one that exceeds it raises TimeoutError."""

    __slots__ = ("_began", "_end", "_left", "_limit", "_span", "_timer")

    def __init__(self, seconds: float) -> None:
        self._left, self._end = seconds, time.monotonic() + seconds * LONGEST
        self._span = max(SPAN, seconds / SPANS)
        self._began = 0.0
        self._limit: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._left

    async def __aenter__(self) -> None:
        self._limit = asyncio.timeout(None if self._left > 0 else 0)
        await self._limit.__aenter__()
        self._measure()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        limit, timer = self._limit, self._timer
        assert limit is not None, "the block was entered"
        self._limit = self._timer = None
        if timer is not None:
            timer.cancel()
        self._left -= min(time.monotonic() - self._began, self._span)
        await limit.__aexit__(kind, error, traceback)

    def _measure(self) -> None:
        span = min(self._span, self._left)
        self._began = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(span, self._measured, span) if span > 0 else None

    def _measured(self, span: float) -> None:
        assert self._limit is not None, "a block that has ended cancels the timer"
        now = time.monotonic()
        late = now - self._began - span
        if late < LATE:
            self._left -= span + max(0.0, late)
        else:
            self._left = max(self._left - span, SPAN)
        if self._left > 0 and now < self._end:
            self._measure()
        else:
            self._timer, self._left = None, 0.0
            self._limit.reschedule(0)
