"""Gives free memory back to the kernel after a load.

The memory allocator keeps what was freed for the next need; after a flood that is most of what the flood took. A look every
ten seconds decides whether to have the pages given back: at the allocator's own count of free bytes, and at
the process's size for what a load between two looks has taken and left. The count and the giving back take some milliseconds
where there are hundreds of MiB, and are done in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from kube import remembering
from kube.serving import allocators

log = logging.getLogger(__name__)

EVERY = 10.0
GROWN = 8 << 20
"""Bytes, of what has become free since the last time or of growth while as many are free, that are worth giving back."""


async def give_back() -> None:
    """Give free memory back, until cancelled; returns at once where the allocator is not one of `allocators`."""
    allocator = allocators.own()
    if allocator is None:
        return
    # What was given back still counts as free, so only what has become free since then is looked at.
    known, smallest = 0, _resident()
    while True:
        await asyncio.sleep(EVERY)
        free = await asyncio.to_thread(allocator.free)
        known, size = min(known, free), _resident()
        smallest = min(smallest, size)
        if free - known > GROWN or min(free, size - smallest) > GROWN:
            remembering.forget_all()
            start = time.perf_counter()
            await asyncio.to_thread(allocator.trim)
            known, smallest = free, _resident()
            log.debug("%d MiB of memory given back in %.3f s", (size - smallest) >> 20, time.perf_counter() - start)


def _resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
