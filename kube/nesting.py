"""Limit on how deep JSON nests.

Functions that work on JSON call themselves for each level, and Python limits how many calls may be nested. So values from
outside are checked against DEEPEST without a call for each level, and Python's limit is raised to what DEEPEST levels need:
the writers of YAML and protobuf nest up to five calls a level.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from typing import Any

DEEPEST = 400
"""Maximum depth of JSON, YAML and protobuf; Go's decoders stop at 10 000, ours long before Python's stack does."""
FRAMES = 3000
"""Nested calls that Python allows; those through C code take up to 600 bytes each of a thread's stack, of 2 MiB or more."""
_NOT_OPENING = bytes(code for code in range(256) if code not in b"[{")
_REST = bytes(code for code in range(256) if code not in b'[]{}"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_BLOCK, _PART = 256, 8
"""Brackets that are counted at once, and those that are looked up at once where the limit is near."""
_STRING = re.compile(rb'"[^"]*"?')
# A string that does not end is one up to the end of the text: else each quote in it would begin another search to there.
_PARTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)

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
    """Return whether JSON text nests deeper than DEEPEST.

    Objects are checked whenever they are read from the store: a megabyte takes ten milliseconds at most, whatever its form.
    """
    # Each level has two brackets.
    if len(body) <= 2 * DEEPEST or len(body.translate(None, _NOT_OPENING)) <= DEEPEST:
        return False
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    # Two quotes beside each other enclose nothing, or are between two strings, which may as well be one.
    marks = unescaped.translate(None, _REST).replace(b'""', b"")
    steps = (_STRING.sub(b"", marks) if b'"' in marks else marks).translate(_STEPS)
    depth = 0
    for start in range(0, len(steps), _BLOCK):
        block = steps[start : start + _BLOCK]
        opened = block.count(1)
        if depth + opened > DEEPEST and _exceeds(depth, block):
            return True
        depth += 2 * opened - len(block)
    return False


def _exceeds(depth: int, block: bytes) -> bool:
    """Return whether brackets after so many levels reach a level below DEEPEST."""
    for start in range(0, len(block), _PART):
        most, change = _part(block[start : start + _PART])
        if depth + most > DEEPEST:
            return True
        depth += change
    return False


@functools.cache
def _part(steps: bytes) -> tuple[int, int]:
    """Return by how many levels a few brackets rise at the most, and at their end; there are 510 such parts."""
    levels = tuple(itertools.accumulate(1 if step else -1 for step in steps))
    return max(levels), levels[-1]


def check_nesting(body: bytes) -> None:
    """Raise TooDeep for text that nests too deep for what works on it afterwards, level by level."""
    if is_deep(body):
        raise TooDeep


def cut(body: bytes) -> bytes:
    """Return JSON text with all objects and lists at level DEEPEST empty, in linear time also for text that is no JSON."""
    pieces: list[bytes] = []
    depth = at = 0
    for found in _PARTS.finditer(body):
        mark = found[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth == DEEPEST:
                pieces.append(body[at : found.end()])
                at = len(body)  # until it ends
        elif mark in (b"}", b"]"):
            if depth == DEEPEST:
                at = found.start()
            depth -= 1
    pieces.append(body[at:])
    return b"".join(pieces)
