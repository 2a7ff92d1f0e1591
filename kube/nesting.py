"""Limit on how deep JSON nests.

Functions that work on JSON call themselves for each level, and Python limits how many calls may be nested. So values from
outside are checked against DEEPEST without a call for each level, and Python's limit is raised to what DEEPEST levels need:
the writers of YAML and protobuf nest up to five calls a level.
"""

from __future__ import annotations

import re
import sys
from typing import Any

DEEPEST = 400
"""Maximum depth of JSON, YAML and protobuf; Go's decoders stop at 10 000, ours long before Python's stack does."""
FRAMES = 3000
"""Nested calls that Python allows; those through C code take up to 600 bytes each of a thread's stack, of 2 MiB or more."""
_OPENING = b"[{"
_PASSES = 16
"""Passes over the brackets in which those of nearly all objects vanish, from the innermost pairs on."""
_REST = bytes(code for code in range(256) if code not in b'[]{}"')
_STRING = re.compile(rb'"[^"]*"?')
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)

sys.setrecursionlimit(max(FRAMES, sys.getrecursionlimit()))


class TooDeep(ValueError):
    """A text nests deeper than DEEPEST; the message is that of Go's decoder."""

    def __init__(self) -> None:
        super().__init__("exceeded max depth")


def too_deep(value: Any) -> bool:
    """Return whether a JSON value nests deeper than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += [part for part in one.values() if isinstance(part, dict | list)]
            elif isinstance(one, list):
                below += [part for part in one if isinstance(part, dict | list)]
        if not below:
            return False
        level = below
    return True


def is_deep(body: bytes) -> bool:
    """Return whether JSON text nests deeper than DEEPEST."""
    if len(body) <= 2 * DEEPEST:  # each level has two brackets
        return False
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    marks = unescaped.translate(None, _REST)
    if marks.count(b"[") + marks.count(b"{") <= DEEPEST:
        return False
    # Two quotes beside each other enclose nothing, or are between two strings, which may as well be one.
    quoted = marks.replace(b'""', b"")
    brackets = left = _STRING.sub(b"", quoted) if b'"' in quoted else quoted
    for _ in range(_PASSES):
        left = left.replace(b"{}", b"").replace(b"[]", b"")
        if not left:
            return False
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in _OPENING else -1
        if depth > DEEPEST:
            return True
    return False


def check_nesting(body: bytes) -> None:
    """Raise TooDeep for text that nests too deep for what works on it afterwards, level by level."""
    if is_deep(body):
        raise TooDeep


def cut(body: bytes) -> bytes:
    """Return valid JSON text with all objects and lists at level DEEPEST empty."""
    pieces: list[bytes] = []
    depth = at = 0
    for found in _PARTS.finditer(body):
        mark = found[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth == DEEPEST:
                pieces.append(body[at : found.end()])
        elif mark in (b"}", b"]"):
            if depth == DEEPEST:
                at = found.start()
            depth -= 1
    pieces.append(body[at:])
    return b"".join(pieces)
