"""The server's own metrics under upstream's names: requests by what they asked, how long they took, what is in flight.

Counting happens on every request, so it is a dict look-up and an addition; the client library for the exposition format is
imported when somebody first scrapes.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from control.server.exchange import Request
from kube.resources import by_path

_CONNECTS = frozenset({"exec", "attach", "portforward", "proxy"})
BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""Upper bounds in seconds, those of apiserver_request_duration_seconds."""

Labels = tuple[str, str, str, str, str]
"""verb, group, version, resource, subresource"""


_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
    "head": "HEAD",
    "post": "POST",
    "put": "PUT",
}


CUSTOM = "custom resource"
"""Set among a request's extensions where it is for a custom resource that is served."""


def labels_of(request: Request) -> Labels:
    """Return what a request is counted under; what is not served has no name, so that nobody can make up new ones."""
    info = request.info
    if CUSTOM in request.extensions:
        part = info.subresource if info.subresource in ("status", "scale") else ""
        return (_VERBS.get(info.verb, "other"), info.group, info.version, info.resource, part)
    return _labels(info.verb, info.group, info.version, info.resource, info.subresource)


@functools.lru_cache(maxsize=4096)
def _labels(verb: str, group: str, version: str, resource: str, subresource: str) -> Labels:
    word = _VERBS.get(verb, "other")
    known = by_path(group, version, resource)
    if known is None:
        return (word, "", "", "", "")
    part = subresource if subresource in known.subresources else ""
    return ("CONNECT" if part in _CONNECTS else word, group, version, resource, part)


class _Durations:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0


class RequestMetrics:
    """Counts of one server."""

    def __init__(self) -> None:
        self._requests: dict[tuple[Labels, int], int] = {}
        self._durations: dict[Labels, _Durations] = {}
        self.long_running: dict[Labels, int] = {}

    def observe(self, labels: Labels, code: int, seconds: float, long_running: bool) -> None:
        """Count a request that has been answered; the time of a long-running one says nothing and is left out."""
        key = (labels, code)
        self._requests[key] = self._requests.get(key, 0) + 1
        if not long_running:
            found = self._durations.get(labels)
            if found is None:
                found = self._durations[labels] = _Durations()
            found.counts[bisect_left(BUCKETS, seconds)] += 1
            found.sum += seconds

    def collect(self, in_flight: Callable[[], dict[str, int]]) -> Iterator[Any]:
        """Yield metric families for prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        names = ["verb", "group", "version", "resource", "subresource"]
        total = CounterMetricFamily("apiserver_request", "Requests answered.", labels=[*names, "code"])
        for (labels, code), count in self._requests.items():
            total.add_metric([*labels, str(code)], count)
        yield total
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time to answer a request, in seconds.", labels=names
        )
        for labels, found in self._durations.items():
            rising, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), found.counts, strict=True):
                rising += count
                buckets.append((bound, rising))
            durations.add_metric(list(labels), buckets, found.sum)
        yield durations
        running = GaugeMetricFamily("apiserver_longrunning_requests", "Watches and such going on.", labels=names)
        for labels, count in self.long_running.items():
            running.add_metric(list(labels), count)
        yield running
        current = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests being served.", labels=["request_kind"]
        )
        for kind, count in in_flight().items():
            current.add_metric([kind], count)
        yield current

    def text(
        self, in_flight: Callable[[], dict[str, int]], more: Callable[[], Iterator[Any]] = lambda: iter(())
    ) -> bytes:
        """Return everything in the exposition format, with the process's own numbers and what `more` yields."""
        import prometheus_client

        registry = prometheus_client.CollectorRegistry()
        registry.register(_Collector(lambda: itertools.chain(self.collect(in_flight), more())))
        prometheus_client.ProcessCollector(registry=registry)
        text: bytes = prometheus_client.generate_latest(registry)
        return text


class _Collector:
    def __init__(self, collect: Callable[[], Iterator[Any]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Any]:
        return self._collect()

    def describe(self) -> Iterator[Any]:
        return iter(())
