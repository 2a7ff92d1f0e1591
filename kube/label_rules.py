"""The requirements of a label selector joined by key, so that a match costs the labels that the object has of those keys.

A selector of 1 MiB has tens of thousands of requirements and is compared with every object of its namespace; an object may
have as many labels and is compared with the selector of each watch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_COMPARED = 2
"""The members of a set that are compared in the time of one step, as a power of two."""
_WHOLE = re.compile("[+-]?[0-9]+")


def whole(text: str) -> int | None:
    """Return a whole number of 64 bits, None for any other text."""
    if not _WHOLE.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    return found if -(1 << 63) <= (found := int(text)) < 1 << 63 else None


class _Rule(msgspec.Struct):
    """Permitted values of one key: all requirements on the key that bound it or name several values."""

    among: frozenset[str] | None = None
    refused: set[str] = msgspec.field(default_factory=set)
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
    """Keys that must not be there, keys that must, and what the values may be.

    What one value decides is compared as sets, ten times as fast as the rest.
    """

    __slots__ = ("_equal", "_forbidden", "_needed", "_never", "_refused", "_rules")

    def __init__(self, requirements: Iterable[tuple[str, str, frozenset[str]]]) -> None:
        self._forbidden: set[str] = set()
        self._needed: set[str] = set()
        self._equal: dict[str, str] = {}
        self._refused: set[tuple[str, str]] = set()
        self._rules: dict[str, _Rule] = {}
        self._never = False
        for key, operator, values in requirements:
            if operator == "!":
                self._forbidden.add(key)
            elif operator == "exists":
                self._needed.add(key)
            elif operator in ("in", "notin") and len(values) == 1:
                (value,) = values
                if operator == "notin":
                    self._refused.add((key, value))
                elif self._equal.setdefault(key, value) != value:
                    self._never = True
            else:
                if operator != "notin":
                    self._needed.add(key)
                self._rules.setdefault(key, _Rule()).add(operator, values)

    def match(self, labels: Mapping[str, str]) -> bool:
        keys = labels.keys()
        if self._never or (self._needed and not self._needed <= keys) or not keys.isdisjoint(self._forbidden):
            return False
        if self._equal and not self._equal.items() <= labels.items():
            return False
        if self._refused and not labels.items().isdisjoint(self._refused):
            return False
        return not self._rules or self._allow(self._rules.keys() & keys, labels)

    def cost(self, labels: Sized) -> int:
        """Return how many steps a match takes; one is some 10 lines of Python, 2 µs."""
        number = len(labels)
        compared = min(len(self._needed), number) + min(len(self._equal), number)
        compared += min(len(self._forbidden), number) + min(len(self._refused), number)
        return (compared >> _COMPARED) + min(len(self._rules), number)

    def parts(self, labels: Mapping[str, str], steps: int) -> Iterator[bool]:
        """Match in parts of so many steps, each of which returns a result: the labels match if all do."""
        keys, pairs, most = labels.keys(), labels.items(), steps << _COMPARED
        yield not self._never and max(len(self._needed), len(self._equal)) <= len(keys)
        for needed in _chunks(self._needed, most):
            yield all(map(keys.__contains__, needed))
        for equal in _chunks(self._equal.items(), most):
            yield all(map(pairs.__contains__, equal))
        few, many = _by_size(self._forbidden, keys)
        for chunk in _chunks(few, most):
            yield not any(map(many.__contains__, chunk))
        few, many = _by_size(self._refused, pairs)
        for chunk in _chunks(few, most):
            yield not any(map(many.__contains__, chunk))
        few, many = _by_size(self._rules.keys(), keys)
        for chunk in _chunks(few, steps):
            yield self._allow(filter(many.__contains__, chunk), labels)

    def _allow(self, keys: Iterable[str], labels: Mapping[str, str]) -> bool:
        return all(self._rules[key].allows(labels[key]) for key in keys)


def _chunks(items: Iterable[T], most: int) -> Iterator[Sequence[T]]:
    left = iter(items)
    while chunk := tuple(islice(left, most)):
        yield chunk


def _by_size(one: AbstractSet[Any], other: AbstractSet[Any]) -> tuple[AbstractSet[Any], AbstractSet[Any]]:
    return (one, other) if len(one) <= len(other) else (other, one)
