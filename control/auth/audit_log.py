"""The file of the audit log: lines in the order in which they came, rotated by size.

Lines are written by one thread, so that a slow disk slows down the log and not the API; past `QUEUE` unwritten lines, or
`QUEUE_BYTES` of such, new ones are dropped and counted. To wake a thread costs more than to make a line, so lines are handed
over together: `BATCH` of them, `BATCH_BYTES`, or those of `WAIT_SECONDS`. Old files go by number and age, as with upstream's
--audit-log-maxsize, -maxbackup and -maxage.

Lines that a full or failing disk does not take are dropped and counted, as upstream's are; the file has whole lines only, and
those that come once the disk takes them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import queue
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from control.auth.audit import ERRORS

log = logging.getLogger(__name__)
QUEUE, QUEUE_BYTES = 10_000, 128 << 20
BATCH, BATCH_BYTES, WAIT_SECONDS = 256, 1 << 20, 0.05


class LogFile:
    """A file of lines with rotation, written by a separate thread. Sizes are bytes, ages seconds, 0 is no limit."""

    def __init__(self, path: Path, max_bytes: int = 100 * 1024 * 1024, backups: int = 10, max_age: int = 0) -> None:
        self._path, self._max_bytes, self._backups, self._max_age = path, max_bytes, backups, max_age
        self._batches: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        self._pending: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._taken = self._done = 0
        """Lines that were queued, counted on the event loop, and those of them that the thread has finished."""
        self._taken_bytes = self._done_bytes = self._pending_bytes = 0
        self.dropped = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: int | None = _open(path)
        self._size = path.stat().st_size
        self._failing = False
        self._thread = threading.Thread(target=self._work, name="audit-log", daemon=True)
        self._thread.start()

    def write(self, line: bytes, user: bytes = b"") -> None:
        """Take a line, of any size; drop it where the disk is too far behind."""
        if self._taken - self._done >= QUEUE or self._taken_bytes - self._done_bytes >= QUEUE_BYTES:
            self.dropped += 1
            ERRORS.add("log")
            return
        self._taken += 1
        self._taken_bytes += len(line)
        self._pending_bytes += len(line)
        self._pending.append(line)
        if len(self._pending) >= BATCH or self._pending_bytes >= BATCH_BYTES:
            self._hand_over()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._hand_over)

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._batches.put(self._pending)
            self._pending, self._pending_bytes = [], 0

    def close(self) -> None:
        """Write what was taken and close the file. Blocks."""
        self._hand_over()
        self._batches.put(None)
        self._thread.join()
        if self._file is not None:
            os.close(self._file)

    def _work(self) -> None:
        while (lines := self._batches.get()) is not None:
            self._write_together(lines)
            self._done_bytes += sum(map(len, lines))
            self._done += len(lines)
            del lines  # they would be held until the next ones come

    def _write_together(self, lines: list[bytes]) -> None:
        """Append some lines at once where they fit, and those that the disk did not take one by one."""
        together, taken = b"".join(lines), 0
        if self._max_bytes <= 0 or self._size + len(together) <= self._max_bytes:
            with contextlib.suppress(OSError):
                taken = self._append(together)
        del together
        for line in lines:
            if taken < len(line):
                self._write(line)
            else:
                taken -= len(line)

    def _write(self, line: bytes) -> None:
        """Append a line, in a new file where this one is large enough; drop it where the disk does not take it."""
        try:
            if self._size and self._size + len(line) > self._max_bytes > 0:
                self._rotate()
            if self._append(line) == len(line):
                self._failing = False
                return
            error: OSError = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as failure:
            error = failure
        self.dropped += 1
        ERRORS.add("log")
        if not self._failing:
            log.error("cannot write the audit log %s, its events are dropped: %s", self._path, error)
        self._failing = True

    def _append(self, text: bytes) -> int:
        """Write as many whole lines as the disk takes and return their bytes; raises OSError if it takes nothing."""
        if self._file is None:
            self._file, self._size = _open(self._path), 0
        written = os.write(self._file, text)
        whole = text.rfind(b"\n", 0, written) + 1
        if whole < written:
            os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
        self._size += whole
        return whole

    def _rotate(self) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}"))
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._remove_old()
        self._file, self._size = _open(self._path), 0

    def _remove_old(self) -> None:
        old = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"), reverse=True)
        limit = time.time() - self._max_age if self._max_age else 0
        for number, path in enumerate(old):
            if (self._backups and number >= self._backups) or path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)


def _open(path: Path) -> int:
    """Open for appending with mode 0600: the log contains data of requests."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
