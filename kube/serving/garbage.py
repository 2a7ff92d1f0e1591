"""Garbage collections of a node's daemons, every ten seconds.

Processes, pods and their tasks are in reference cycles that Python would collect after some hundred thousand further
objects: a daemon would keep what a burst of pods took for hours, and need new memory for the next one. What the start has
made is frozen, so a collection takes less than a millisecond. It blocks the event loop: one that takes longer than LONGEST
is the last.
"""

from __future__ import annotations

import asyncio
import gc
import time

EVERY = 10.0
LONGEST = 0.02
"""Seconds of CPU time."""


async def collect() -> None:
    """Collect garbage once the start's objects are frozen, until cancelled or there are too many others."""
    while True:
        await asyncio.sleep(EVERY)
        start = time.thread_time()
        if gc.get_freeze_count():
            gc.collect()
        if time.thread_time() - start > LONGEST:
            return
