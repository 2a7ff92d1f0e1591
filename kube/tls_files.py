"""TLS settings made from files, and made again when those change: certificates are renewed while a daemon runs.

The ssl module reads files once, when a context is made. The files are looked at for each connection, which costs a few
microseconds beside a handshake. Upstream: client-go/transport, cert_rotation.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]


class TlsFiles:
    """The context that `make` makes of `files`; what `make` raises the first time is raised, later the old one stays."""

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[Path]) -> None:
        self._make, self._files = make, files
        self._context: ssl.SSLContext | None = None
        self._stamps: list[Stamp] = []

    def context(self) -> ssl.SSLContext:
        """Return the settings for a new connection; raises OSError (ssl.SSLError among it) where there never were any."""
        try:
            stamps = [_stamp(file) for file in self._files]
            if self._context is None or stamps != self._stamps:
                self._context = self._make()
                self._stamps = stamps
        except OSError as error:
            if self._context is None:
                raise
            # A certificate without its key yet, as while both are written.
            log.warning("TLS files %s: %s", ", ".join(map(str, self._files)), error)
        return self._context


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
