"""Signals of timers of CPU time, and computation that takes some."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator


@contextlib.contextmanager
def cpu_signals() -> Iterator[list[float]]:
    """Collect the CPU times of the thread at which SIGPROF came."""
    found: list[float] = []
    before = signal.signal(signal.SIGPROF, lambda *_: found.append(time.thread_time()))
    try:
        yield found
    finally:
        signal.signal(signal.SIGPROF, before)


def burn(seconds: float) -> None:
    """Compute for seconds of the thread's CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
