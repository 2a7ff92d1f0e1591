"""A configuration file that is read again when it changes: those of authentication, authorization and encryption.

Its time and size are looked at every so often, which sees every way of replacing it (also a mounted ConfigMap's links).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from control.auth.metrics import RELOADED, RELOADS
from kube.clock import Clock

log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]


class Reloaded:
    """One file; `path` None: there is none, and never will be while the server runs."""

    def __init__(self, what: str, path: Path | None) -> None:
        self.what, self.path = what, path
        self._text: bytes | None = None
        self._stamp: Stamp | None = None

    def first(self) -> bytes | None:
        """Read the file for the start; raises OSError."""
        if self.path is not None:
            self._stamp = _stamp(self.path)
            self._text = self.path.read_bytes()
        return self._text

    async def follow(self, take: Callable[[bytes], Awaitable[None]], clock: Clock, every: float) -> None:
        """Give each new content to `take` until cancelled; what it raises is logged, and what was there before stays."""
        while True:
            await clock.sleep(every)
            try:
                text = await asyncio.to_thread(self._changed)
                if text is None:
                    continue
                log.info("%s has changed", self.path)
                await take(text)
            except Exception as error:  # whatever a file can provoke: the server continues with what it has
                log.error("the new %s configuration is not used: %s", self.what, error)
                self._count("failure")
            else:
                self._count("success")

    def _changed(self) -> bytes | None:
        assert self.path is not None
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return None
        text = self.path.read_bytes()
        self._stamp = stamp
        if text == self._text:
            return None
        self._text = text
        return text

    def _count(self, status: str) -> None:
        RELOADS[self.what].add(status)
        RELOADED[self.what].set(status, value=time.time())


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
