"""Computations in steps, as generators: users decide how many there are, so they leave the event loop to others in between.

Where several namespaces have something computed, they share the event loop's time: `SHARES`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar, cast

from kube.fair_steps import FairSteps
from kube.step_shares import Shares

STEPS = 256
"""Steps of some microseconds between two iterations of the event loop."""
SECONDS = 0.005
"""Time after which there is an iteration whatever the number of steps: the check of a certificate takes a millisecond."""
PAUSE = 60.0
"""Seconds for which a namespace has nothing computed after a step was stopped."""
SHARES = Shares("gateway", 1.0, 0.25, PAUSE, FairSteps(SECONDS), every_step=True)
"""CPU time of computations for each namespace: of one step, and a quarter of all time after a second at once. In an iteration
of the event loop those of all namespaces have some milliseconds, round robin."""
R = TypeVar("R")


async def completed(steps: Generator[int, None, R]) -> R:
    """Run a computation to its end, which yields numbers of steps, some in each iteration of the event loop; the caller's next
    steps are not in the same iteration as many.
    """
    done, began = 0, time.perf_counter()
    ended, found = False, None
    while not ended:
        try:
            done += next(steps)
        except StopIteration as end:
            ended, found = True, end.value
        if done >= STEPS or time.perf_counter() - began >= SECONDS:
            await asyncio.sleep(0)
            done, began = 0, time.perf_counter()
    return cast(R, found)
