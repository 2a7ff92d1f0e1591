"""Record of the addons that this machine applied from its folder, in a file of the control plane's data.

A file that is missing means that its objects are to be deleted only where it was before. On a machine that got the cluster's
objects otherwise, from a snapshot or as a new member, the folder was not filled yet.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from kube.files import write_file

log = logging.getLogger(__name__)


class Record:
    """The names of addons, read once. Without a path they are kept in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._names = _read(path)
        self._lock = asyncio.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    async def add(self, name: str) -> None:
        """Record an addon. Raise OSError."""
        async with self._lock:
            if name not in self._names:
                await self._write(self._names | {name})

    async def discard(self, name: str) -> None:
        """Remove an addon from the record. Raise OSError."""
        async with self._lock:
            if name in self._names:
                await self._write(self._names - {name})

    async def _write(self, names: frozenset[str]) -> None:
        if self._path is not None:
            await asyncio.to_thread(write_file, self._path, msgspec.json.encode(sorted(names)), 0o600)
        self._names = names


def _read(path: Path | None) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(path.read_bytes(), type=list[str])) if path is not None else frozenset()
    except FileNotFoundError:
        return frozenset()
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read (%s): objects of files that are missing are kept", path, error)
        return frozenset()
