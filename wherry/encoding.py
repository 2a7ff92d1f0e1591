"""Output in an encoding that lacks some characters: marks become ASCII, others are escaped as Python writes them.

With PYTHONIOENCODING or a locale of another character set, Python's standard output would end a command at its first mark.
"""

from __future__ import annotations

import codecs
import io
import sys

_HANDLER = "wherry.ascii"
_MARKS = {"✓": "+", "✗": "x", "…": "...", "→": "->", "█": "#", "░": "."}
_SPINNER = range(0x2800, 0x2900)
"""Braille patterns, of which rich's spinner is made."""


def adapt() -> None:
    """Have the standard streams replace what their encodings lack."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
            stream.reconfigure(errors=_HANDLER)


def _is_unicode(name: str) -> bool:
    return codecs.lookup(name).name.startswith("utf")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(character: str) -> str:
    if ord(character) in _SPINNER:
        return "*"
    return _MARKS.get(character) or character.encode("ascii", "backslashreplace").decode()
