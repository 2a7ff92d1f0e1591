"""Faults of a soak's Python daemons from a library in front of the C library: a wall clock that is set, a monotonic clock that
stood still in a suspension, and fsync that fails.

CLOCK_REALTIME belongs to no namespace, so the machine's clock cannot be set for a cluster. The library (preloaded.c) is
compiled here; it concerns the programs that daemons start, too. containerd keeps the machine's time, and its fsync does not
fail: Go makes system calls without the C library.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

COMPILER = "cc"
SOURCE = Path(__file__).with_name("preloaded.c")
HOUR, TEN_YEARS = 3600, 3653 * 86_400
AGE = 2 * HOUR
"""Time that the cluster is older than it is, so that its certificates were valid an hour ago."""
SECOND = 10**9


class Preloaded:
    """The library and the file that says what fails."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "preloaded.so", folder / "preloaded.faults"
        argv = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True, timeout=60)
        self._file.write_bytes(bytes(24))
        self._suspended = 0
        self.environment = {"LD_PRELOAD": str(library), "PRELOADED_FAULTS": str(self._file)}
        """Environment variables of the daemons."""

    def set_clock(self, seconds: int) -> None:
        """Have the wall clock so many seconds ahead of the machine's."""
        self._write(0, struct.pack("q", seconds * SECOND))

    def fail_fsync(self, on: Path | None) -> None:
        """Have fsync fail with EIO on the disk that a path is on; on none without a path."""
        self._write(8, struct.pack("Q", on.stat().st_dev if on else 0))

    def suspend(self, seconds: float) -> None:
        """Set the monotonic clock back by the time for which the daemons were stopped: it stood still in between."""
        self._suspended += int(seconds * SECOND)
        self._write(16, struct.pack("q", self._suspended))

    def _write(self, at: int, what: bytes) -> None:
        with self._file.open("r+b") as file:
            file.seek(at)
            file.write(what)


def preloaded(folder: Path) -> Preloaded | None:
    """Return the library with its files in a folder; None where there is no compiler."""
    return Preloaded(folder) if shutil.which(COMPILER) else None
