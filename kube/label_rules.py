"""The requirements of a label selector joined by key, so that a match costs the labels that the object has of those keys.

A selector of 1 MiB has tens of thousands of requirements and is compared with every object of its namespace; an object may
have as many labels and is compared with the selector of each watch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_WHOLE = re.compile("[+-]?[0-9]+")


def whole(text: str) -> int | None:
    """Return a whole number of 64 bits, None for any other text."""
    if not _WHOLE.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    return found if -(1 << 63) <= (found := int(text)) < 1 << 63 else None


@dataclass(slots=True)
class _Rule:
    """What the value of one key may be: all requirements on the key but those that forbid it."""

    among: frozenset[str] | None = None
    refused: set[str] = field(default_factory=set)
    above: int | None = None
    below: int | None = None
    never: bool = False

    def add(self, operator: str, values: frozenset[str]) -> None:
        if operator == "in":
            self.among = values if self.among is None else self.among & values
        elif operator == "notin":
            self.refused |= values
        elif operator in ("gt", "lt"):
            (text,) = values
            self._bound(operator, whole(text))

    def _bound(self, operator: str, bound: int | None) -> None:
        if bound is None:
            self.never = True
        elif operator == "gt":
            self.above = bound if self.above is None else max(self.above, bound)
        else:
            self.below = bound if self.below is None else min(self.below, bound)

    def allows(self, value: str) -> bool:
        if self.never or value in self.refused or (self.among is not None and value not in self.among):
            return False
        return (self.above is None and self.below is None) or self._between(whole(value))

    def _between(self, number: int | None) -> bool:
        if number is None or (self.above is not None and number <= self.above):
            return False
        return self.below is None or number < self.below


class Rules:
    """Keys that must not be there, keys that must, and what the values may be."""

    __slots__ = ("_forbidden", "_needed", "_rules")

    def __init__(self, requirements: Iterable[tuple[str, str, frozenset[str]]]) -> None:
        self._forbidden: set[str] = set()
        self._needed: set[str] = set()
        self._rules: dict[str, _Rule] = {}
        for key, operator, values in requirements:
            if operator == "!":
                self._forbidden.add(key)
                continue
            if operator != "notin":
                self._needed.add(key)
            self._rules.setdefault(key, _Rule()).add(operator, values)

    def match(self, labels: Mapping[str, str]) -> bool:
        keys = labels.keys()
        if not self._needed <= keys or not keys.isdisjoint(self._forbidden):
            return False
        return all(self._rules[key].allows(labels[key]) for key in self._rules.keys() & keys)
