"""Limits for protocols of small frames, of which one read can hold thousands: WebSocket and SPDY sessions.

Reading a frame costs far more than its bytes. So a session reads little at a time (FRAME_CHUNK), gives the event loop back
after FRAMES_PER_ITERATION frames, and of all sessions that share `SessionYield` one continues in an iteration of the loop.
Control frames, which no client has reason to send often, are limited to a rate.
"""

from __future__ import annotations

import asyncio

FRAME_CHUNK, SPDY_CHUNK = 4 << 10, 16 << 10
"""Bytes to read at a time where they may be frames of a few bytes; of SPDY more, whose frames cost less."""
FRAMES_PER_ITERATION = 64
CONTROL_BURST, CONTROL_PER_SECOND = 128, 16.0
"""Pings, pongs and the like that a session may send: so many at once, and so many a second after that."""


class SessionYield:
    """Lets the sessions that have read many frames continue in their order, one in an iteration of the event loop."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def wait(self) -> None:
        """Yield to the event loop; return when this session may continue."""
        async with self._one:
            await asyncio.sleep(0)


class FrameCounter:
    """Counts one session's frames, and yields to the others of `session_yield`."""

    def __init__(self, session_yield: SessionYield) -> None:
        self._session_yield = session_yield
        self._frames = 0

    async def count(self, frames: int = 1) -> None:
        """Count frames; yield once there are enough of them."""
        self._frames += frames
        if self._frames >= FRAMES_PER_ITERATION:
            self._frames = 0
            await self._session_yield.wait()


class ControlFrames:
    """A token bucket of the control frames that a session may still send; times in seconds, of a clock that only grows."""

    def __init__(self) -> None:
        self._left = float(CONTROL_BURST)
        self._last: float | None = None

    def allow(self, now: float) -> bool:
        """Count one frame; False when there are too many."""
        if self._last is not None:
            self._left = min(float(CONTROL_BURST), self._left + (now - self._last) * CONTROL_PER_SECOND)
        self._last = now
        self._left -= 1
        return self._left >= 0
