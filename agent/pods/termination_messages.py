"""Reads a container's termination message from its file, or from the end of its log.

Both are files that the container's processes control, so they are opened without following links and read up to a limit
(pkg/kubelet/kuberuntime: 4096 bytes of file, 80 lines and 2048 bytes of log). The file is the agent's own, on its disk, or one
of a volume that is mounted at the message's path. Reading from a volume may block for ever: a thread of the pod reads it,
and the message is empty if that takes longer than `VOLUME_SECONDS` once it has begun.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import replace
from pathlib import Path

from agent import threads
from agent.runtime_records import ContainerRecord
from agent.threads import Owner

FILE_BYTES, LOG_BYTES, LOG_LINES = 4096, 2048, 80
VOLUME_SECONDS = 2.0


def own_folder(pod_dir: Path, container: str) -> Path:
    """Return where the agent makes the message files of a container."""
    return pod_dir / "containers" / container


def is_on_volume(record: ContainerRecord, pod_dir: Path) -> bool:
    """Return whether a dead container's message may be in a file of a volume."""
    file = record.message_file
    return record.exited and bool(file) and Path(file).parent != own_folder(pod_dir, record.name)


async def with_message(record: ContainerRecord, pod_dir: Path, owner: Owner) -> ContainerRecord:
    """Add to a dead container's record what it left as its termination message, wherever that is."""
    if not is_on_volume(record, pod_dir):
        return with_own_message(record)
    file, text = record.message_file, ""
    with contextlib.suppress(OSError):  # TimeoutError, and the refusal of one more call that may hang
        text = await threads.call_shared(f"message {file}", read_message, file, owner=owner, seconds=VOLUME_SECONDS)
    return _completed(record, text)


def with_own_message(record: ContainerRecord) -> ContainerRecord:
    """Do the same where no volume stands behind the message's file."""
    if not record.exited:
        return record
    return _completed(record, read_message(record.message_file) if record.message_file else "")


def _completed(record: ContainerRecord, text: str) -> ContainerRecord:
    if not text and record.message_policy == "FallbackToLogsOnError" and record.exit_code != 0:
        text = tail_log(record.log_path)
    return replace(record, message=text) if text else record


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
