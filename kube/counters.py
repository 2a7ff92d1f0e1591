"""Counters and histograms of this process for /metrics. An observation is an addition; a scrape computes the rest.

They belong to the process and not to a server, as in upstream. The client library of the exposition format, which costs
40 ms to load, is imported at the first scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Prometheus' own buckets, where upstream gives none."""
_all: list[Counter | Gauge | Histogram] = []
_looks: list[Callable[[], None]] = []


class Counter:
    """Counter by labels. `name` is without `_total`."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[tuple[str, ...], float] = {}
        _all.append(self)

    def add(self, *labels: str, amount: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + amount

    def family(self) -> Any:
        from prometheus_client.core import CounterMetricFamily

        return _filled(CounterMetricFamily(self.name, self.text, labels=self.labels), self)


class Gauge:
    """Current value by labels."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[tuple[str, ...], float] = {}
        _all.append(self)

    def set(self, *labels: str, value: float) -> None:
        self.values[labels] = value

    def add(self, *labels: str, amount: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + amount

    def family(self) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        return _filled(GaugeMetricFamily(self.name, self.text, labels=self.labels), self)


def _filled(family: Any, metric: Counter | Gauge) -> Any:
    for labels, value in metric.values.items():
        family.add_metric(labels, value)
    if not metric.labels and not metric.values:
        family.add_metric((), 0)
    return family


class _Spread:
    """The values under the same labels: how many in each bucket, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts, self.sum = [0] * (buckets + 1), 0.0


class Histogram:
    """Distribution of values by labels; buckets are upper bounds."""

    def __init__(self, name: str, text: str, *labels: str, buckets: Sequence[float] = SECONDS) -> None:
        self.name, self.text, self.labels, self.buckets = name, text, labels, tuple(buckets)
        self.spreads: dict[tuple[str, ...], _Spread] = {}
        _all.append(self)

    def observe(self, *given: Any) -> None:
        """Count a value, the last argument, under the labels before it."""
        labels, value = given[:-1], given[-1]
        spread = self.spreads.get(labels)
        if spread is None:
            spread = self.spreads[labels] = _Spread(len(self.buckets))
        spread.counts[bisect_left(self.buckets, value)] += 1
        spread.sum += value

    def family(self) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, spread in self.spreads.items():
            rising, found = 0, []
            for bound, count in zip((*map(str, self.buckets), "+Inf"), spread.counts, strict=True):
                rising += count
                found.append((bound, rising))
            family.add_metric(labels, found, spread.sum)
        return family


def before_scrape(look: Callable[[], None]) -> None:
    """Have something called before each scrape: what is cheaper to look at than to count."""
    _looks.append(look)


def families() -> Iterator[Any]:
    """Yield the metric families of all of them."""
    for look in _looks:
        look()
    for metric in _all:
        yield metric.family()
