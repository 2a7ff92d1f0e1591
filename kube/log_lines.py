"""Log lines for people: one line a record, whatever a message holds.

Messages hold what clients send (paths, names, errors of other servers). A line break in one would begin a line that looks
like the daemon's own, and an escape sequence would command the terminal that shows the log. Lines of a traceback, whose
last one holds an error's text, are indented, so that none begins as a record does. Of a long message or traceback the beginning
is written: it may hold megabytes, which would fill the log, and delay everything else while they are escaped.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TextIO, TypeAlias

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
LONGEST = 16 * 1024
"""Characters of a message, or of a traceback, that are written."""
FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def escaped(text: str) -> str:
    """Return a text on one line: what cannot be printed (control characters, line breaks, marks that change the direction
    of text) is written as Python writes it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


class LineFormatter(logging.Formatter):
    """Formats records so that only a record's first line stands at the left edge."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(shortened(record.message))
        return super().formatMessage(record)

    def formatException(self, ei: _ExcInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"    {escaped(line)}" for line in shortened(text).split("\n"))


def handler(form: str = FORMAT, stream: TextIO | None = None) -> logging.Handler:
    """Make the handler that writes lines to standard error."""
    made = logging.StreamHandler(stream or sys.stderr)
    made.setFormatter(LineFormatter(form))
    return made
