"""Gives free memory back to the kernel after a load.

glibc keeps what was freed for the next need, unless it lies at the end of its heap; after a flood that is most of what the
flood took. A look at glibc's own count of free bytes every ten seconds decides whether to have the pages given back. Both
take some milliseconds where there are hundreds of MiB, and are done in a thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time

from kube import remembering

log = logging.getLogger(__name__)

EVERY = 10.0
GROWN = 8 << 20
"""Free bytes since the last time that are worth giving back."""


class _Info(ctypes.Structure):
    """struct mallinfo2 (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


async def give_back() -> None:
    """Give free memory back, until cancelled; returns at once where the C library is not glibc 2.33 or later."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return
    library.mallinfo2.restype = _Info
    # What was given back still counts as free, so only what has become free since then is looked at.
    known = 0
    while True:
        await asyncio.sleep(EVERY)
        free: int = (await asyncio.to_thread(library.mallinfo2)).fordblks
        known = min(known, free)
        if free - known > GROWN:
            remembering.forget_all()
            start = time.perf_counter()
            await asyncio.to_thread(library.malloc_trim, 0)
            log.debug("%d MiB of free memory given back in %.3f s", (free - known) >> 20, time.perf_counter() - start)
            known = free
