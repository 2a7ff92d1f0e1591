"""Cached results of device selectors, by a number for each selector's text, since texts may have 10 KB.

A verdict is whether the selector matches, or a text that says why it cannot be evaluated.

The texts are kept once and not with each device. Both tables are emptied when they are full; numbers are not used again.
"""

from __future__ import annotations

import itertools

MOST_TEXTS, MOST_VERDICTS, LONGEST_ERROR = 1024, 256, 1024
Verdict = bool | str
_numbers: dict[str, int] = {}
_next = itertools.count()


def _number(expression: str) -> int:
    found = _numbers.get(expression)
    if found is None:
        if len(_numbers) >= MOST_TEXTS:
            _numbers.clear()
        found = _numbers[expression] = next(_next)
    return found


class Verdicts:
    """Those of one device."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Verdict] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, expression: str) -> Verdict | None:
        """Return what a selector said, None where that is not known."""
        return self._known.get(_number(expression))

    def put(self, expression: str, verdict: Verdict) -> Verdict:
        """Cache a selector's result, and return it; a long text is cut."""
        if isinstance(verdict, str):
            verdict = verdict[:LONGEST_ERROR]
        if len(self._known) >= MOST_VERDICTS:
            self._known.clear()
        self._known[_number(expression)] = verdict
        return verdict
