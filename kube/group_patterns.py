"""Patterns that repeat a group: `re` keeps 100 to 250 bytes for each repetition until the match ends.

A possessive repetition keeps nothing: `(?:...)*+`. It is for groups that fail at once or not at all, because CPython before
3.11.5 takes a part of others, that has failed, for a match. For those the text's length is checked first, here or by the
caller. tests/unit/test_patterns.py finds patterns that do neither.
"""

from __future__ import annotations

import re

LONGEST = 4096
"""Characters of a text that `fullmatch` reads: no duration, version or path has as many."""


def fullmatch(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Match a whole text, None also for one that is longer than any that is meant."""
    return pattern.fullmatch(text) if len(text) <= LONGEST else None
