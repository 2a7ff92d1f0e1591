"""Sets of completion indexes, as text "0-2,5" and as intervals.

A Job may have 2^31 indexes, so a set is never spelled out: its cost depends on its intervals, of which there are no more
than the text has commas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Interval = tuple[int, int]
"""(first, last), both included."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """A set of indexes; the intervals are in order and neither overlap nor touch."""

    intervals: tuple[Interval, ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self.intervals, index, key=_first)
        return place > 0 and index <= self.intervals[place - 1][1]

    def __or__(self, other: Indexes) -> Indexes:
        return _joined([*self.intervals, *other.intervals]) if other.intervals else self

    def __and__(self, other: Indexes) -> Indexes:
        shared, mine, theirs = list[Interval](), 0, 0
        while mine < len(self.intervals) and theirs < len(other.intervals):
            (low, high), (first, last) = self.intervals[mine], other.intervals[theirs]
            if max(low, first) <= min(high, last):
                shared.append((max(low, first), min(high, last)))
            mine, theirs = (mine + 1, theirs) if high < last else (mine, theirs + 1)
        return Indexes(tuple(shared))

    def __sub__(self, other: Indexes) -> Indexes:
        if not self.intervals:
            return self
        return self & Indexes(tuple(other.gaps(self.intervals[-1][1] + 1)))

    def gaps(self, end: int) -> Iterator[Interval]:
        """Yield the intervals from 0 up to `end` (not included) that are not in the set."""
        begin = 0
        for first, last in self.intervals:
            if first >= end:
                break
            if begin < first:
                yield begin, first - 1
            begin = last + 1
        if begin < end:
            yield begin, end - 1

    def missing(self, end: int) -> Iterator[int]:
        """Yield the indexes below `end` that are not in the set, one after the other."""
        for first, last in self.gaps(end):
            yield from range(first, last + 1)


def _first(interval: Interval) -> int:
    return interval[0]


def _joined(intervals: Iterable[Interval]) -> Indexes:
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return Indexes(tuple(found))


def of(indexes: Iterable[int]) -> Indexes:
    """Return the set of some indexes."""
    return _joined((index, index) for index in indexes)


def parse(text: str | None, completions: int) -> Indexes:
    """Read a set of indexes; those beyond the completions, and what cannot be read, are left out."""
    found: list[Interval] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        try:
            low, high = int(first), min(int(last or first), completions - 1)
        except ValueError:
            continue
        if 0 <= low <= high:
            found.append((low, high))
    return _joined(found)


def render(indexes: Indexes) -> str:
    """Write a set of indexes; two in a row are "1,2", three and more a range."""
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in indexes.intervals
    )
