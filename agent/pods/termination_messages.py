"""Termination messages: what a container wrote before it died, from its file or the end of its log.

Both are files that the container's processes control, so they are opened without following links and read to a limit
(pkg/kubelet/kuberuntime: 4096 bytes of file, 80 lines and 2048 bytes of log).
"""

from __future__ import annotations

import os
import stat

FILE_BYTES, LOG_BYTES, LOG_LINES = 4096, 2048, 80


def read_message(path: str) -> str:
    """Return the termination message in a file, "" where there is none."""
    data = _read(path, FILE_BYTES, from_end=False)
    return data.decode(errors="replace") if data else ""


def tail_log(path: str) -> str:
    """Return the end of a container's log without the runtime's time, stream and tag columns."""
    data = _read(path, 64 * 1024, from_end=True)
    parts = []
    for line in data.decode(errors="replace").split("\n")[-LOG_LINES - 1 :]:
        columns = line.split(" ", 3)
        # What a container wrote without a newline at its end is tagged P, as is a line's part that another follows.
        if len(columns) == 4:
            parts.append(columns[3] + ("" if columns[2].partition(":")[0] == "P" else "\n"))
    return "".join(parts)[-LOG_BYTES:]


def _read(path: str, limit: int, *, from_end: bool) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        offset = max(0, status.st_size - limit) if from_end else 0
        return os.pread(descriptor, limit, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
