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


def doubled(first: float, count: int) -> tuple[float, ...]:
    """Return bounds of buckets, each twice the one before."""
    return tuple(round(first * 2**power, 6) for power in range(count))


_all: list[Counter | Gauge | Histogram] = []
_looks: list[Callable[[], None]] = []


class Counter:
    """Counter by labels. `name` is without `suffix`, which only few of upstream's counters do not have."""

    def __init__(self, name: str, text: str, *labels: str, suffix: str = "_total") -> None:
        self.name, self.text, self.labels, self.suffix = name, text, labels, suffix
        self.values: dict[tuple[str, ...], float] = {}
        _all.append(self)

    def add(self, *labels: str, amount: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + amount

    def family(self) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = _filled(CounterMetricFamily(self.name, self.text, labels=self.labels), self)
        if self.suffix != "_total":
            family.samples = [sample._replace(name=self.name + self.suffix) for sample in family.samples]
        return family


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
        self.spreads: dict[tuple[str, ...], _Spread] = {} if labels else {(): _Spread(len(self.buckets))}
        _all.append(self)

    def observe(self, *given: Any) -> None:
        """Count a value, the last argument, under the labels before it."""
        labels, value = given[:-1], given[-1]
        spread = self.spreads.get(labels)
        if spread is None:
            spread = self.spreads[labels] = _Spread(len(self.buckets))
        spread.counts[bisect_left(self.buckets, value)] += 1
        spread.sum += value

    def bound(self, *labels: str) -> Callable[[float], None]:
        """Return a function that counts a value under these labels, for paths where each look-up counts."""
        spread = self.spreads.setdefault(labels, _Spread(len(self.buckets)))
        buckets = self.buckets

        def observe(value: float) -> None:
            spread.counts[bisect_left(buckets, value)] += 1
            spread.sum += value

        return observe

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


def defined() -> tuple[Counter | Gauge | Histogram, ...]:
    """Return the metrics of the modules that are imported."""
    return tuple(_all)


def families(wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Any]:
    """Yield the metric families of all of them, or of those whose name is wanted."""
    for look in _looks:
        look()
    for metric in _all:
        if wanted(metric.name):
            yield metric.family()
