"""Log lines as JSON objects, as upstream's --logging-format=json (component-base logs/json).

`ts` is in milliseconds since 1970, `caller` the folder and file of the code, and `v` the verbosity of a message; errors have no
`v`, and `err` is their cause. Upstream writes warnings as information, without their severity; here they have `"level":
"warning"` too.
"""

from __future__ import annotations

import logging
import re

import msgspec

from kube.error_words import words
from kube.log_lines import shortened

DEBUG_VERBOSITY = 4
"""Verbosity of debug messages: the value of --v from which on they are logged."""
_SOURCE = re.compile(r"[^/]*/[^/]*$")


class JsonFormatter(logging.Formatter):
    """One object a line, whatever a message holds."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{_source(record.pathname)}:{record.lineno}",
            "msg": shortened(record.getMessage()),
        }
        if record.levelno < logging.ERROR:
            line["v"] = 0 if record.levelno >= logging.INFO else DEBUG_VERBOSITY
            if record.levelno >= logging.WARNING:
                line["level"] = "warning"
        if record.exc_info:
            error = record.exc_info[1]
            line["err"] = shortened(str(error or "")) or (words(error) if error else "")
            line["stacktrace"] = shortened(self.formatException(record.exc_info))
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:
            return msgspec.json.encode({key: _encodable(value) for key, value in line.items()}).decode()


def _encodable(value: object) -> object:
    """Return a text as the lines for people show it: Python reads bytes of file names that are no UTF-8 as no Unicode."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _source(path: str) -> str:
    """Return the last folder and the name of a file."""
    found = _SOURCE.search(path)
    return found[0].lstrip("/") if found else path
