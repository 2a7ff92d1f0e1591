"""The newest revision ever acknowledged, in a file next to the database.

If the database was replaced by an older copy (a restored disk, a file copied back), it would assign revisions again that
clients have seen with other contents. The mark outside the database shows the difference at the next start. It is
written after each commit without a sync of its own: it survives the end of the process, and after a power failure it may
be behind the database, never ahead. The number is written twice, because a partial write mixes the digits of two numbers:
one of both is still intact, and the smaller one is not greater than the acknowledged revision.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

_DIGITS = 20


class HighWaterMark:
    """One mark. All methods belong to the thread that writes the database."""

    def __init__(self, database: Path) -> None:
        """Open the mark of a database, creating it with mode 0600; raises OSError."""
        path = database.with_name(database.name + ".revision")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._failed = False

    def read(self) -> int:
        """Return the newest revision recorded; 0 if there is none or it cannot be read."""
        try:
            text = os.pread(self._descriptor, 2 * _DIGITS, 0)
        except OSError as error:
            log.warning("the newest revision next to the database cannot be read: %s", error)
            return 0
        if not text.isdigit():
            return 0
        # An earlier version wrote the number once.
        return min(int(text[:_DIGITS]), int(text[_DIGITS:] or text[:_DIGITS]))

    def record(self, revision: int) -> None:
        """Record a committed revision. A failure is logged once and does not affect the commit."""
        try:
            os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, revision) * 2, 0)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("the newest revision cannot be written next to the database: %s", error)
            self._failed = True

    def close(self) -> None:
        os.close(self._descriptor)
