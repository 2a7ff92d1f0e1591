"""Reference-counted file descriptors of a log's reader: closed after the reader's end and the last call of a thread.

A reader ends at any time, when its client disconnects. The call that is under way then continues in its thread, for as long as
the disk takes: it may still open a file, and must not find its descriptor's number given to another file.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LogDescriptors:
    """The descriptors of one reader, whose calls come one after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._in_use = self._closed = False

    def use(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that uses a descriptor, in a thread. Raise OSError after `close`."""
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._in_use = True
        try:
            return function(*args, **kwargs)
        finally:
            with self._lock:
                self._in_use = False
                if self._closed:
                    self._close_all()

    def add(self, descriptor: int) -> None:
        """Take over a descriptor; to be called in `use`."""
        self._open.add(descriptor)

    def drop(self, descriptor: int) -> None:
        """Close a descriptor that no call uses."""
        self._open.discard(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Close all, at the end of the call that is under way. Never waits for it."""
        with self._lock:
            self._closed = True
            if not self._in_use:
                self._close_all()

    def _close_all(self) -> None:
        while self._open:
            os.close(self._open.pop())
