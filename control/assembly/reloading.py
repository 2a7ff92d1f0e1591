"""A configuration file that is read again when it changes: those of authentication, authorization and encryption.

Its time and size are looked at every so often, which sees every way of replacing it (also a mounted ConfigMap's links).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from control.auth.metrics import RELOADED, RELOADS
from control.server_tasks.server_identity import identity
from kube.clock import Clock

log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds between attempts to use a content that failed; upstream polls the file each minute."""


class _Retry(msgspec.Struct, frozen=True):
    """A content that could not be used; `stamp` is None if the file could not even be found."""

    stamp: Stamp | None
    at: float
    delay: float


class Reloaded:
    """One file; `path` None: there is none, and never will be while the server runs."""

    def __init__(self, what: str, path: Path | None) -> None:
        self.what, self.path = what, path
        self._text: bytes | None = None
        self._stamp: Stamp | None = None
        """Content and stamp of the file that are in use."""
        self._retry: _Retry | None = None

    def first(self) -> bytes | None:
        """Read the file for the start; raises OSError."""
        if self.path is not None:
            self._stamp = _stamp(self.path)
            self._text = self.path.read_bytes()
        return self._text

    async def follow(self, take: Callable[[bytes], Awaitable[None]], clock: Clock, every: float) -> None:
        """Pass each new content to `take` until cancelled; if that raises, the former content stays in use.

        `take` is retried with the same content, first after FIRST_RETRY seconds and then up to LAST_RETRY: it may fail for
        reasons other than the content, such as a plugin that is being started.
        """
        while True:
            await clock.sleep(every)
            stamp: Stamp | None = None
            try:
                stamp = await asyncio.to_thread(self._changed, clock.monotonic())
                if stamp is None:
                    continue
                text = await asyncio.to_thread(self._read)
                if text != self._text:
                    log.info("%s has changed", self.path)
                    await take(text)
                    self._count("success")
                self._stamp, self._text, self._retry = stamp, text, None
            except Exception as error:  # whatever a file can provoke: the server continues with what it has
                self._retry_later(stamp, clock.monotonic())
                log.error("the new %s configuration is not used: %s", self.what, error)
                self._count("failure")

    def _retry_later(self, stamp: Stamp | None, now: float) -> None:
        before = self._retry if self._retry is not None and self._retry.stamp == stamp else None
        delay = FIRST_RETRY if before is None else min(before.delay * 2, LAST_RETRY)
        self._retry = _Retry(stamp, now + delay, delay)

    def _changed(self, now: float) -> Stamp | None:
        """Return the file's stamp if it differs from that in use, and is not one that failed a moment ago; raises OSError."""
        assert self.path is not None
        retry = self._retry
        try:
            stamp = _stamp(self.path)
        except OSError:
            if retry is not None and retry.stamp is None and now < retry.at:
                return None
            raise
        if stamp == self._stamp:
            self._retry = None
            return None
        return None if retry is not None and retry.stamp == stamp and now < retry.at else stamp

    def _read(self) -> bytes:
        assert self.path is not None
        return self.path.read_bytes()

    def _count(self, status: str) -> None:
        server = _id_hash()
        RELOADS[self.what].add(status, server)
        RELOADED[self.what].set(status, server, value=time.time())


@functools.cache
def _id_hash() -> str:
    """Return the label by which metrics tell servers apart: a digest of the name of this server's identity lease."""
    return f"sha256:{hashlib.sha256(identity(socket.gethostname()).encode()).hexdigest()}"


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
