"""The newest revision ever acknowledged, in a file beside the database.

A database that an older copy has replaced (a restored disk, a file copied back) would hand out revisions again that clients
have seen with other contents. The mark outside it shows the difference at the next start. It is written after each commit
without a sync of its own: it survives the end of the process, and after a power cut it may be behind the database,
never ahead of it. It is there twice, since a write that was done in part mixes the digits of two numbers: one of both is
then still whole, and the smaller is not above what was acknowledged.
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
        """Return the newest revision recorded; 0 where there is none or it cannot be read."""
        try:
            text = os.pread(self._descriptor, 2 * _DIGITS, 0)
        except OSError as error:
            log.warning("the newest revision beside the database cannot be read: %s", error)
            return 0
        if not text.isdigit():
            return 0
        # An earlier version wrote it once.
        return min(int(text[:_DIGITS]), int(text[_DIGITS:] or text[:_DIGITS]))

    def note(self, revision: int) -> None:
        """Keep a revision that has been committed. A failure is logged once: the commit itself stands."""
        try:
            os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, revision) * 2, 0)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("the newest revision cannot be kept beside the database: %s", error)
            self._failed = True

    def close(self) -> None:
        os.close(self._descriptor)
