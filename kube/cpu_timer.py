"""A timer of a thread's CPU time that sends SIGPROF.

`signal.setitimer` has timers of the process's CPU time only, which kernels that account time by their own ticks measure in
those ticks: where several processes compete for a core, such a timer (ITIMER_PROF) may need four times the CPU time that it
was set to. A timer of timer_create(2) measures what the scheduler does; Python's library has no function for it. ITIMER_PROF
serves where the C library has none (macOS) and where the kernel refuses one: it takes a place among the pending signals of the
user (RLIMIT_SIGPENDING), which another process of the same user, as a container that runs as root, may have used up.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from typing import Any

log = logging.getLogger(__name__)

NUMBER = signal.SIGPROF
_SIGEV_SIGNAL = 0


class _Event(ctypes.Structure):
    """struct sigevent of Linux, with the bytes that its union may have."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class CpuTimer:
    """Sends SIGPROF each time that the thread that makes it has used `seconds` of CPU time, or once without `repeats`.

    The signal may be some ticks of the kernel late, and later if ITIMER_PROF serves. At most one at a time in a process: all
    send the same signal.
    """

    _reported = False

    def __init__(self, seconds: float, *, repeats: bool = True) -> None:
        self._seconds, self._repeats = seconds, repeats
        self._id: ctypes.c_void_p | None = None
        self._library = _library()
        if self._library is not None:
            self._create()

    def _create(self) -> None:
        created = ctypes.c_void_p()
        event = _Event(None, NUMBER, _SIGEV_SIGNAL)
        try:
            self._call("timer_create", time.CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(created))
        except OSError as error:
            self._library = None
            if not CpuTimer._reported:
                CpuTimer._reported = True
                log.warning("limits of CPU time are measured by ITIMER_PROF, which may be late: %s", error)
        else:
            self._id = created

    def start(self) -> None:
        """Start it, or start it anew."""
        self._set(self._seconds, self._seconds if self._repeats else 0.0)

    def stop(self) -> None:
        """Stop it: no signal is sent any more; one that was sent may still be handled."""
        self._set(0.0, 0.0)

    def close(self) -> None:
        """Stop it and release what the kernel holds for it; then it must not be started."""
        if self._id is not None:
            self.stop()
            self._call("timer_delete", self._id)
            self._id = None
        elif self._library is None:
            self.stop()

    def _set(self, value: float, interval: float) -> None:
        if self._library is None:
            signal.setitimer(signal.ITIMER_PROF, value, interval)
        else:
            setting = _Setting(_time(interval), _time(value))
            self._call("timer_settime", self._id, 0, ctypes.byref(setting), None)

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._library, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")


def _time(seconds: float) -> _Time:
    whole = int(seconds)
    return _Time(whole, int((seconds - whole) * 1_000_000_000))


def _library() -> ctypes.CDLL | None:
    """Return the library that has timers of POSIX (glibc before 2.34 has them in one of its own), or None."""
    if sys.platform != "linux":
        return None
    for name in (None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
        if hasattr(library, "timer_create"):
            return library
    return None
