"""Statistics of malloc's free memory, and its release to the kernel.

Both count unused memory as free, whether or not its pages were returned to the kernel.
"""

from __future__ import annotations

import ctypes
from typing import Protocol


class Allocator(Protocol):
    """Both methods take some milliseconds where there are hundreds of MiB, and may be called in a thread."""

    def free(self) -> int:
        """Return the bytes that are held and not in use."""

    def release_thread_cache(self) -> None:
        """Free the blocks that are kept ready for the calling thread; takes less than a millisecond."""

    def trim(self) -> None:
        """Give pages in which nothing is in use back to the kernel."""


def own() -> Allocator | None:
    """Return this process's allocator; None if it is neither jemalloc nor that of glibc 2.33 or later."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallctl"):
        return Jemalloc(library)
    return Glibc(library) if hasattr(library, "mallinfo2") else None


class _Info(ctypes.Structure):
    """struct mallinfo2 (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class Glibc:
    """The C library's allocator: it gives back by itself only what lies at the end of its heap."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.mallinfo2.restype = _Info
        self._library = library

    def free(self) -> int:
        count: int = self._library.mallinfo2().fordblks
        return count

    def used(self) -> int:
        """Return the bytes that are in use, those of large blocks included."""
        info = self._library.mallinfo2()
        count: int = info.uordblks + info.hblkhd
        return count

    def release_thread_cache(self) -> None:
        """Do nothing: the C library has no call for it, and caches seven blocks of a size."""

    def trim(self) -> None:
        self._library.malloc_trim(0)


class Jemalloc:
    """jemalloc(3): statistics and commands by name. Statistics are those of the last time that `epoch` was written."""

    DECAY, PURGE = b"arena.4096.decay", b"arena.4096.purge"
    """Of all arenas: 4096 is MALLCTL_ARENAS_ALL."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._control = library.mallctl
        self._control.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t]

    def free(self) -> int:
        """Return the bytes in use. Frees pages unused for ten seconds, which otherwise happens only at allocations."""
        self._control(self.DECAY, None, None, None, 0)
        epoch = ctypes.c_uint64(1)
        self._control(b"epoch", None, None, ctypes.byref(epoch), ctypes.sizeof(epoch))
        return self._read(b"stats.mapped") + self._read(b"stats.retained") - self._read(b"stats.allocated")

    def release_thread_cache(self) -> None:
        self._control(b"thread.tcache.flush", None, None, None, 0)

    def trim(self) -> None:
        self._control(self.PURGE, None, None, None, 0)

    def _read(self, name: bytes) -> int:
        value = ctypes.c_size_t()
        length = ctypes.c_size_t(ctypes.sizeof(value))
        self._control(name, ctypes.byref(value), ctypes.byref(length), None, 0)
        return value.value
