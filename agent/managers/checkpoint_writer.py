"""Writes a checkpoint: one write at a time, the newest state last, and again after a failure.

Files are written in threads, which a cancelled task does not stop: a write that a thread has begun is completed before the next
one begins, or an older state could replace a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes one file; `prepare` returns a function that writes the state as it is now, and is called in a thread."""

    def __init__(self, name: str, prepare: Callable[[], Callable[[], None]]) -> None:
        self._name, self._prepare = name, prepare
        self._turn = asyncio.Lock()
        self._unsaved = False
        """The state has changed since the last write that succeeded began."""
        self._marked = False
        """The state has changed since the last `save_marked` or `try_save_marked`."""
        self._logged = ""
        self._writes: set[asyncio.Task[None]] = set()

    def mark(self) -> None:
        """Note one of several changes, which are written together."""
        self._marked = self._unsaved = True

    async def save_marked(self) -> None:
        """Write the state if there are such changes. Raise OSError: `retry` writes it then."""
        if self._marked:
            self._marked = False
            await self.save()

    async def try_save_marked(self) -> None:
        """Write the state if there are such changes; if that fails, log the error."""
        if self._marked:
            self._marked = False
            await self.try_save()

    async def save(self) -> None:
        """Write the state, or a newer one. Raise OSError: `retry` writes it then."""
        self._unsaved = True
        await asyncio.shield(self._start())

    async def try_save(self) -> None:
        """Write the state, or a newer one; if that fails, log the error."""
        try:
            await self.save()
        except OSError as error:
            self._log(error)

    async def save_all(self) -> None:
        """Return when all changes so far are written, by whichever write. Raise OSError: `retry` writes them then."""
        if self._unsaved or self._writes:
            await asyncio.shield(self._start())

    async def try_save_all(self) -> None:
        """Return when all changes so far are written; if that fails, log the error."""
        try:
            await self.save_all()
        except OSError as error:
            self._log(error)

    def save_at_start(self) -> None:
        """Write the state before others use it; if that fails, log the error: `retry` writes it then."""
        try:
            self._prepare()()
        except OSError as error:
            self._unsaved = True
            self._log(error)

    async def retry(self) -> None:
        """Write what could not be written before."""
        if self._unsaved:
            await self.try_save()

    def _log(self, error: OSError) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("writing the checkpoint %s: %s", self._name, error)

    def _start(self) -> asyncio.Task[None]:
        write = asyncio.create_task(self._write(), name=f"writing {self._name}")
        self._writes.add(write)
        write.add_done_callback(self._ended)
        return write

    def _ended(self, write: asyncio.Task[None]) -> None:
        self._writes.discard(write)
        if not write.cancelled():
            write.exception()  # whoever waited for it may be cancelled

    async def _write(self) -> None:
        async with self._turn:
            if not self._unsaved:
                return  # a write that began after this one was requested has done it
            self._unsaved = False
            try:
                await asyncio.to_thread(self._prepare())
            except BaseException:
                self._unsaved = True
                raise
            self._logged = ""
