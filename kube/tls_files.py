"""TLS settings from files, reloaded when these change: certificates and authorities are renewed while a daemon runs.

The ssl module reads files once, when a context is made. The files are looked at for each connection, which costs a few
microseconds beside a handshake. Upstream: client-go/transport (cert_rotation, ca_rotation), apiserver's dynamiccertificates.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]
T = TypeVar("T")


class FromFiles(Generic[T]):
    """Result of `make` for `files`. OSError and ValueError of the first time are raised; later the old one stays."""

    def __init__(self, make: Callable[[], T], files: Sequence[Path]) -> None:
        self._make, self._files = make, files
        self._made: T | None = None
        self._stamps: list[Stamp | None] = []

    def is_current(self) -> bool:
        """Return whether `current` has nothing to make."""
        return self._made is not None and [_stamp(file) for file in self._files] == self._stamps

    def current(self) -> T:
        """Return what the files give now; raises as `make` does where it never could be made."""
        stamps = [_stamp(file) for file in self._files]
        if self._made is None or stamps != self._stamps:
            try:
                self._made = self._make()
            except (OSError, ValueError) as error:
                if self._made is None:
                    raise
                # A certificate without its key yet, as while both are written. Retried when one of them changes,
                # and each time where it is not for what they contain.
                log.warning("TLS files %s: %s", ", ".join(map(str, self._files)), error)
                if _is_transient(error):
                    return self._made
            self._stamps = stamps
        return self._made


TlsFiles = FromFiles[ssl.SSLContext]
"""TLS settings for new connections."""


def _is_transient(error: Exception) -> bool:
    """Return whether the files may be usable all the same, as where the process has no descriptor left."""
    return isinstance(error, OSError) and not isinstance(error, (ssl.SSLError, FileNotFoundError))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
