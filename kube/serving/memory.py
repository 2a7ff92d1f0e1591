"""Returns free memory to the kernel after a load.

The memory allocator keeps freed memory for later allocations; after a burst of requests that is most of what they needed. A
check every ten seconds decides whether to return the pages: by the allocator's count of free bytes, and by the growth of
the process, which shows a load between two checks. What a load leaves is freed over the next minute: recent changes expire,
connections are closed, histories are deleted. Until then less free memory suffices. Counting and returning take some
milliseconds for hundreds of MiB, and run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from kube import bounded_cache
from kube.serving import allocators
from kube.serving.free_lists import release_tuples

log = logging.getLogger(__name__)

EVERY = 10.0
GROWN = 8 << 20
"""Minimum of bytes freed since the last check, or of growth with as many free bytes, for which pages are returned."""
SETTLING_CHECKS = 9
"""Number of checks after one that found so much for which LITTLE suffices: 90 seconds."""
LITTLE = 512 << 10


async def give_back() -> None:
    """Return free memory until cancelled; ends at once if the allocator is not one of `allocators`."""
    allocator = allocators.own()
    if allocator is None:
        return
    # What was given back still counts as free, so only what has become free since then is looked at.
    known, smallest, settling = 0, _resident(), 0
    while True:
        await asyncio.sleep(EVERY)
        free = await asyncio.to_thread(allocator.free)
        known, size = min(known, free), _resident()
        smallest = min(smallest, size)
        settling -= 1
        if free - known > GROWN or min(free, size - smallest) > GROWN:
            settling = SETTLING_CHECKS
            bounded_cache.forget_all()
        elif settling < 0 or free - known < LITTLE:
            continue
        start = time.perf_counter()
        allocator.release_thread_cache()
        await asyncio.to_thread(_release, allocator)
        known, smallest = free, _resident()
        log.debug("%d MiB of memory given back in %.3f s", (size - smallest) >> 20, time.perf_counter() - start)


def _release(allocator: allocators.Allocator) -> None:
    release_tuples()
    allocator.release_thread_cache()
    allocator.trim()


def _resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
