"""A limit on how many values JSON text holds: each costs the same whether it takes two bytes or a thousand.

A list of a million empty objects takes 3 MB as text, almost a gigabyte as objects of a type, and seconds of each thing that is
done with them. Values are objects, lists and scalars; keys are none.
"""

from __future__ import annotations

import re

MOST_VALUES = 200_000
"""Values of a body, counted by their commas and brackets. An object of 1.5 MiB has far fewer."""
_KEPT = b'[]{},"'
_REST = bytes(code for code in range(256) if code not in _KEPT)
_STRING = re.compile(rb'"[^"]*"?')


class TooManyValues(ValueError):
    """A body holds more values than it may, MOST_VALUES unless less is said."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__(f"more than {MOST_VALUES if most is None else most} values")


def marks(text: bytes) -> int:
    """Return how many values JSON text has at the most: commas and brackets, those in its strings included."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def check_count(body: bytes, most: int | None = None) -> None:
    """Raise TooManyValues for JSON text with more values than `most`, which is MOST_VALUES if not given."""
    limit = MOST_VALUES if most is None else most
    if len(body) >= limit and marks(body) >= limit and marks(structure(body)) >= limit:
        raise TooManyValues(most)


def structure(body: bytes) -> bytes:
    """Return the brackets and commas of JSON text that are in no string, in steps that each take some milliseconds."""
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    # Two quotes beside each other enclose nothing, or are between two strings, which may as well be one.
    bare = unescaped.translate(None, _REST).replace(b'""', b"")
    return _STRING.sub(b"", bare) if b'"' in bare else bare
