"""A short switch interval of the interpreter while a thread works next to the event loop.

The loop takes the interpreter's lock again for each event, a dozen times for a request on a new connection, and a thread
keeps it for 5 ms by default.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SWITCH_SECONDS = 0.0002
"""Time that a thread may keep the interpreter's lock while the event loop wants it."""


class _Interval:
    """The interval before the first of the calls that need a short one, which the last of them restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._usual = 0, 0.0

    def shorten(self) -> None:
        with self._lock:
            if self._calls == 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_SECONDS)
            self._calls += 1

    def restore(self) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0:
                sys.setswitchinterval(self._usual)


_interval = _Interval()


def switching(work: Callable[[], T]) -> T:
    """Return what `work` returns, with the short interval until then; to be called in a thread."""
    _interval.shorten()
    try:
        return work()
    finally:
        _interval.restore()
