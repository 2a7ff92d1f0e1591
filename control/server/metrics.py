"""The server's own metrics under upstream's names: requests by verb and resource, their duration, and requests in flight.

Counting happens on every request, so it is a dict look-up and an addition; the client library for the exposition format is
imported when somebody first scrapes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any

from control.auth.authenticators import HEALTH_PATHS
from control.http.exchange import Answer, Request, Response
from control.interfaces.requestinfo import RequestInfo
from kube.bounded_cache import bounded_cache
from kube.counters import Gauge
from kube.resources import by_path

_CONNECTS = frozenset({"exec", "attach", "portforward", "proxy"})
BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""Upper bounds in seconds, those of apiserver_request_duration_seconds."""

Labels = tuple[str, str, str, str, str, str]
"""verb, group, version, resource, subresource, scope"""
_NAMES = ["verb", "group", "version", "resource", "subresource", "scope", "component"]
_COMPONENT = "apiserver"
_SLI_BUCKETS = tuple(bound for bound in BUCKETS if bound != 0.025)
_SIZES = tuple(1000.0 * 10**n for n in range(7))
"""Upper bounds in bytes, those of apiserver_response_sizes."""


_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": "APPLY",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
    "head": "HEAD",
    "post": "POST",
    "put": "PUT",
}


CUSTOM = "custom resource"
"""Set among a request's extensions where it is for a custom resource that is served."""


DEPRECATED = Gauge(
    "apiserver_requested_deprecated_apis",
    "Deprecated APIs that were requested; the value is 1.",
    "group",
    "version",
    "resource",
    "subresource",
    "removed_release",
)


def labels_of(request: Request) -> Labels:
    """Return what a request is counted under; unknown resources have no name, so that clients cannot add label values."""
    info = request.info
    apply = info.verb == "patch" and request.headers.get(b"content-type", b"").startswith(b"application/apply-patch")
    verb = "apply" if apply else info.verb
    if not info.is_resource:
        root = "/" + info.path[1:].partition("/")[0]
        return (_VERBS.get(verb, "other"), "", "", "", root if root in HEALTH_PATHS else "", "")
    if CUSTOM in request.extensions:
        part = info.subresource if info.subresource in ("status", "scale") else ""
        return (_VERBS.get(verb, "other"), info.group, info.version, info.resource, part, _scope(info))
    return _labels(verb, info.group, info.version, info.resource, info.subresource, _scope(info))


def _scope(info: RequestInfo) -> str:
    """Return what a request is about: an object, a namespace, or the whole cluster (metrics.CleanScope)."""
    if info.name or info.verb == "create":
        return "resource"
    return "namespace" if info.namespace else "cluster"


@bounded_cache(4096)
def _labels(verb: str, group: str, version: str, resource: str, subresource: str, scope: str) -> Labels:
    word = _VERBS.get(verb, "other")
    known = by_path(group, version, resource)
    if known is None:
        return (word, "", "", "", "", scope)
    part = subresource if subresource in known.subresources else ""
    return ("CONNECT" if part in _CONNECTS else word, group, version, resource, part, scope)


class _Spread:
    """Counts of values by upper bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def rising(self, bounds: Collection[float]) -> list[tuple[str, float]]:
        """Return how many values were up to each of some of the bounds."""
        found, total = [], 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            total += count
            if bound in bounds or bound == math.inf:
                found.append(("+Inf" if bound == math.inf else str(bound), float(total)))
        return found


class RequestMetrics:
    """Counts of one server."""

    def __init__(self) -> None:
        self._requests: dict[tuple[Labels, str, int], int] = {}
        self._durations: dict[tuple[Labels, str], _Spread] = {}
        self._sizes: dict[Labels, _Spread] = {}
        self.long_running: dict[Labels, int] = {}
        self.reading = self.writing = 0
        """Requests that are being served."""

    def in_flight(self) -> dict[str, int]:
        """Return how many requests are being served, by kind."""
        return {"readOnly": self.reading, "mutating": self.writing}

    def observe(self, request: Request, answer: Answer, code: int, seconds: float) -> None:
        """Count a request that has been answered; the duration of a long-running one is not observed."""
        labels = labels_of(request)
        dry_run = "All" if b"dryRun=" in request.query_string else ""
        key = (labels, dry_run, code)
        self._requests[key] = self._requests.get(key, 0) + 1
        if not isinstance(answer, Response):
            return
        found = self._durations.get((labels, dry_run))
        if found is None:
            found = self._durations[labels, dry_run] = _Spread(BUCKETS)
        found.add(seconds)
        if labels[0] in ("GET", "LIST"):
            size = self._sizes.get(labels)
            if size is None:
                size = self._sizes[labels] = _Spread(_SIZES)
            size.add(len(answer.body))

    def collect(self) -> Iterator[Any]:
        """Yield metric families for prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        label_names = ["verb", "dry_run", *_NAMES[1:]]
        total = CounterMetricFamily("apiserver_request", "Requests answered.", labels=[*label_names, "code"])
        for (labels, dry_run, code), count in self._requests.items():
            total.add_metric([labels[0], dry_run, *labels[1:], _COMPONENT, str(code)], count)
        yield total
        yield from self._spreads(label_names)
        running = GaugeMetricFamily("apiserver_longrunning_requests", "Watches and such going on.", labels=_NAMES)
        for each, count in self.long_running.items():
            running.add_metric([*each, _COMPONENT], count)
        yield running
        current = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests being served.", labels=["request_kind"]
        )
        for kind, count in self.in_flight().items():
            current.add_metric([kind], count)
        yield current

    def _spreads(self, label_names: list[str]) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time to answer a request, in seconds.", labels=label_names
        )
        # What webhooks and queues took is part of both here; the two differ upstream by that alone.
        sli = HistogramMetricFamily(
            "apiserver_request_sli_duration_seconds", "Time to answer a request, in seconds.", labels=_NAMES
        )
        for (labels, dry_run), found in self._durations.items():
            durations.add_metric([labels[0], dry_run, *labels[1:], _COMPONENT], found.rising(BUCKETS), found.sum)
            if not dry_run:
                sli.add_metric([*labels, _COMPONENT], found.rising(_SLI_BUCKETS), found.sum)
        yield durations
        yield sli
        sizes = HistogramMetricFamily("apiserver_response_sizes", "Sizes of answers to reads, in bytes.", labels=_NAMES)
        for labels, found in self._sizes.items():
            sizes.add_metric([*labels, _COMPONENT], found.rising(_SIZES), found.sum)
        yield sizes
