"""The clock of a simulated process."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta

from simulation.event_loop import Scheduler
from simulation.sources import START


class SimulatedClock:
    """A `kube.clock.Clock` in the event loop's virtual time."""

    steady = True

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> datetime:
        return START + timedelta(microseconds=math.ceil(self._scheduler.seconds * 1e6))

    def monotonic(self) -> float:
        return self._scheduler.seconds

    def boottime(self) -> float:
        return self._scheduler.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_deferrable(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
