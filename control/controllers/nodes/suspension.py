"""Detects that this process was suspended or busy. Pure.

The time since a node's last heartbeat counts from when the heartbeat was received here. A process that did not run
(stopped by a signal, on a suspended machine, starved) received none, though the nodes may have sent them, so that time
must not count. Upstream's controller manager loses its leader lease in that case, and restarts with new times.
"""

from __future__ import annotations

CHECK_SECONDS = 5.0
"""Maximum interval between checks; a gap of more than twice as much is a suspension."""


class SuspensionDetector:
    """Computes suspensions from the monotonic times of its checks, which must be made every CHECK_SECONDS."""

    def __init__(self) -> None:
        self._last: float | None = None

    def suspended(self, now: float) -> float:
        """Return the seconds that the process was suspended since the last check; 0 if it was not."""
        gap = now - self._last - CHECK_SECONDS if self._last is not None else 0.0
        self._last = now
        return gap if gap > CHECK_SECONDS else 0.0
