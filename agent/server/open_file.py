"""An open file that closes with the last reference to it, if it was not closed before.

A request that is cancelled leaves its thread behind, which may still open or read the file: nobody else is there to close it.
"""

from __future__ import annotations

import os


class OpenFile:
    """A descriptor and its owner."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; no thread may use it any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def status(self) -> os.stat_result:
        """Raise OSError."""
        return os.fstat(self._descriptor)

    def names(self) -> list[str]:
        """List a folder; folders below it end with a slash. Raise OSError."""
        with os.scandir(self._descriptor) as entries:
            return sorted(e.name + ("/" if e.is_dir(follow_symlinks=False) else "") for e in entries)

    def read(self, size: int, offset: int) -> bytes:
        """Return at most `size` bytes. Raise OSError."""
        return os.pread(self._descriptor, size, offset)
