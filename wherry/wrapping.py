"""Text broken at 80 columns, on a terminal and in a pipe, but not within a command or path that a reader copies."""

from __future__ import annotations

import re
import textwrap

WIDTH = 80
LONGEST = 16 << 10
"""Characters of a text that is broken: a longer one is no sentence for people."""
_PIECE = re.compile(r"(?:`[^`]*`|\S)+")
_KEPT = "\u00a0"
"""Stands for a space that no line ends at, while text is wrapped."""


def wrapped(text: str, indent: int = 0) -> list[str]:
    """Break a text at spaces, but for those within backquotes. A line may be longer where it has a path or command."""
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", _KEPT), text)
    broken = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A piece that is too long for its column begins further left.
    return [line.replace(_KEPT, " ") if len(line) <= WIDTH else _left(line) for line in broken]


def breaks(text: str, width: int) -> list[int]:
    """Return where the second and further lines of a line begin, if none but those of one piece is longer than the width."""
    indent, start, found = len(text) - len(text.lstrip()), 0, list[int]()
    if len(text) > LONGEST:
        return []
    for piece in _PIECE.finditer(text):
        is_first = piece.start() == (start or indent)
        if not is_first and piece.end() - start + (indent if found else 0) > width:
            start = piece.start()
            found.append(start)
    return found


def beside(start: str, text: str) -> list[str]:
    """Return a text in the column behind the start of its first line."""
    first, *others = wrapped(text, len(start)) or [""]
    if first[: len(start)].strip():  # it begins further left
        return [start.rstrip(), first, *others]
    return [(start + first[len(start) :]).rstrip(), *others]


def _left(line: str) -> str:
    text = line.replace(_KEPT, " ").strip()
    return " " * max(0, WIDTH - len(text)) + text
