"""Work of a thread that another thread can end: a thread cannot be killed, but an exception can be raised in it.

The interpreter raises it between two steps of Python; a call of C code goes on to its end. It can come anywhere, so the work
may change nothing that others see before it is done.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

from kube import errors

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class _TooLong(BaseException):
    """Raised in the work; no Exception, which the work might continue after."""


class Limited:
    """One piece of work. It is called by its thread, and `stop` by another when its time is over."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread = 0

    def __call__(self) -> Any:
        """Return what the work returns; raises 504 if it was stopped."""
        try:
            self._thread = threading.get_ident()
            try:
                return self._work()
            finally:
                with self._lock:  # from here on nothing is raised in this thread, which continues with other work
                    self._thread = 0
        except _TooLong:
            gc.enable()  # it may have come where collections were to be turned on again
            raise errors.timeout("request did not complete within the allotted timeout") from None

    def stop(self) -> None:
        """End the work if it continues."""
        with self._lock:
            if self._thread:
                _raise_in(ctypes.c_ulong(self._thread), ctypes.py_object(_TooLong))
