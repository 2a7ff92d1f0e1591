"""A container's log file in CRI's format: `TIME stdout|stderr F|P text`."""

import time
from pathlib import Path
from typing import BinaryIO


class ContainerLog:
    """Writes to the file at path; an empty path writes nowhere."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._file: BinaryIO | None = None

    def write(self, stream: str, text: bytes) -> None:
        """Append whole lines."""
        if self._path is None:
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        for line in text.splitlines():
            seconds, rest = divmod(time.time_ns(), 1_000_000_000)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
            self._file.write(f"{stamp}.{rest:09d}Z {stream} F ".encode() + line + b"\n")

    def reopen(self) -> None:
        """Continue in a new file."""
        self.close()
        if self._path is not None:
            self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
