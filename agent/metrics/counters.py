"""Counters and histograms for /metrics.

A family is created with its name, help and label names; samples appear with the first value of their labels. Families without
labels exist from the start with 0, as Prometheus clients have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from agent.metrics.exposition import Sample, Text
from kube.exposition import number

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counter:
    """A number that rises; with `kind` gauge one that is set."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), kind: str = "counter") -> None:
        self.name, self._help, self._labels, self._kind = name, help, tuple(labels), kind
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add to the sample of these label values."""
        self._values[labels] = self._values.get(labels, 0.0) + by

    def set(self, value: float, *labels: str) -> None:
        """Set the sample of these label values."""
        self._values[labels] = value

    def value(self, *labels: str) -> float:
        """Return the sample of these label values."""
        return self._values.get(labels, 0.0)

    def write(self, text: Text) -> None:
        """Add the family to a text; one without samples is left out."""
        if self._values:
            samples = [
                (dict(zip(self._labels, found, strict=True)), v, 0.0) for found, v in sorted(self._values.items())
            ]
            text.family(self.name, self._kind, self._help, samples)


class Histogram:
    """Counts of observations by upper bound."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS
    ) -> None:
        self.name, self._help, self._labels, self._buckets = name, help, tuple(labels), tuple(buckets)
        self._counts: dict[tuple[str, ...], list[int]] = {} if labels else {(): self._empty()}
        self._sums: dict[tuple[str, ...], float] = {}

    def _empty(self) -> list[int]:
        return [0] * (len(self._buckets) + 1)

    def observe(self, value: float, *labels: str) -> None:
        """Count a value under these label values."""
        counts = self._counts.setdefault(labels, self._empty())
        counts[bisect_left(self._buckets, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def count(self, *labels: str) -> int:
        """Return how many values there were under these label values."""
        return sum(self._counts.get(labels, ()))

    def write(self, text: Text) -> None:
        """Add the family to a text; one without samples is left out."""
        if not self._counts:
            return
        buckets: list[Sample] = []
        sums: list[Sample] = []
        numbers: list[Sample] = []
        bounds = [*map(number, self._buckets), "+Inf"]
        for values, counts in sorted(self._counts.items()):
            labels = dict(zip(self._labels, values, strict=True))
            for bound, total in zip(bounds, accumulate(counts), strict=True):
                buckets.append(({**labels, "le": bound}, total, 0.0))
            sums.append((labels, self._sums.get(values, 0.0), 0.0))
            numbers.append((labels, sum(counts), 0.0))
        text.histogram(self.name, self._help, buckets, sums, numbers)
