"""Limits for protocols of small frames, of which one read can hold thousands: WebSocket and SPDY sessions.

Reading a frame costs far more than its bytes. So a session reads little at a time (FRAME_CHUNK), gives the event loop back
after FRAMES_A_TURN frames, and of all sessions that share `SessionTurns` one goes on in a round of the loop. Control
frames, which no client has reason to send often, are limited to a rate.
"""

from __future__ import annotations

import asyncio

FRAME_CHUNK, SPDY_CHUNK = 4 << 10, 16 << 10
"""Bytes to read at a time where they may be frames of a few bytes; of SPDY more, whose frames cost less."""
FRAMES_A_TURN = 64
CONTROL_BURST, CONTROL_PER_SECOND = 128, 16.0
"""Pings, pongs and the like that a session may send: so many at once, and so many a second after that."""


class SessionTurns:
    """Lets the sessions that have read many frames go on in the order they asked, one in a round of the event loop."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def wait(self) -> None:
        """Give the event loop back; return when it is this session's turn."""
        async with self._one:
            await asyncio.sleep(0)


class SessionTurn:
    """One session's part in `turns`."""

    def __init__(self, turns: SessionTurns) -> None:
        self._turns = turns
        self._frames = 0

    async def count(self, frames: int = 1) -> None:
        """Count frames; wait for the next turn once there are enough of them."""
        self._frames += frames
        if self._frames >= FRAMES_A_TURN:
            self._frames = 0
            await self._turns.wait()


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
