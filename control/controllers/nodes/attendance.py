"""Detects that this process was suspended or busy. Pure.

Silence is judged by when heartbeats were seen here. A process that stood still (stopped by a signal, on a suspended
machine, starved) saw none, though the nodes may have sent them; its own absence must not count against them. Upstream's
controller manager loses its leader lease then, and starts over with fresh times.
"""

from __future__ import annotations

PULSE = 5.0
"""Seconds between looks at the clock at most; a gap of more than twice that was an absence."""


class Attendance:
    """Tells absences from the monotonic times at which it is asked; somebody has to ask every PULSE seconds."""

    def __init__(self) -> None:
        self._seen: float | None = None

    def lost(self, now: float) -> float:
        """Return the seconds that were lost since the last look; 0 where there was no absence."""
        gap = now - self._seen - PULSE if self._seen is not None else 0.0
        self._seen = now
        return gap if gap > PULSE else 0.0
