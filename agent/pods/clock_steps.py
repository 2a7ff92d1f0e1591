"""Detects steps of the wall clock, and suspends of the machine, which stop the monotonic clock.

The agent waits by the monotonic clock, so that no step changes a back-off. But service account tokens expire and active
deadlines pass by the wall clock: after a step the remaining waits for them are computed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.volumes.tokens import clock_offset
from kube.clock import Clock

log = logging.getLogger(__name__)
CHECK_SECONDS = 10.0
STEP_SECONDS = 5.0
"""Difference between both clocks' progress that is a step; the correction of a clock's rate is some milliseconds."""


class ClockSteps:
    """Calls `stepped` after each step."""

    def __init__(self, clock: Clock, stepped: Callable[[], None]) -> None:
        self._clock, self._stepped = clock, stepped

    async def run(self) -> None:
        """Check until cancelled."""
        before = clock_offset(self._clock)
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            now = clock_offset(self._clock)
            if abs(now - before) >= STEP_SECONDS:
                log.warning("the wall clock was set, or the machine suspended: %+.0f s", now - before)
                self._stepped()
            before = now
