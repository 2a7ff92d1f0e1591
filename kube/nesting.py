"""A limit on how deep JSON nests, found without a call for each level."""

from __future__ import annotations

import re
from typing import Any

DEEPEST = 400
"""How deep JSON and YAML may nest; Go's decoders stop at 10 000, ours long before Python's stack does."""
_KEPT = b'[]{}"'
_REST = bytes(code for code in range(256) if code not in _KEPT)
_STRING = re.compile(rb'"[^"]*"?')
_OPENING = b"[{"


def too_deep(value: Any) -> bool:
    """Say whether a JSON value nests deeper than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST + 1):
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


def check_nesting(body: bytes) -> None:
    """Raise ValueError for text that nests too deep for what works on it afterwards, level by level."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    depth = 0
    for bracket in _brackets(body):
        depth += 1 if bracket in _OPENING else -1
        if depth > DEEPEST:
            raise ValueError("exceeded max depth")


def _brackets(body: bytes) -> bytes:
    """Return the brackets of JSON text that are in no string, in steps that each take a millisecond or two for a megabyte.

    An expression that passes over everything else would keep the interpreter's lock for ten times as long.
    """
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    # Two quotes beside each other enclose nothing, or are between two strings, which may as well be one.
    bare = unescaped.translate(None, _REST).replace(b'""', b"")
    return _STRING.sub(b"", bare) if b'"' in bare else bare
