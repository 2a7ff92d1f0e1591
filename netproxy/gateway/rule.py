"""A rule of a route, compiled: its changes of requests and responses, and the choice of a backend by weight."""

from __future__ import annotations

import itertools
from bisect import bisect_right

from kube.gateway.model import Backend, Filters, Redirect, Route, Rule
from netproxy.gateway.header_changes import HeaderEdit, edit
from netproxy.gateway.path_changes import PathEdit, valid_hostname

_STEP = 0.6180339887498949
"""Multiples of this number, taken modulo 1, are spread evenly: each backend's share holds for short series of requests too."""


class CompiledFilters:
    """Changes of requests and responses of a rule or of a backend; `hostname` replaces the Host header unless empty."""

    __slots__ = ("hostname", "path", "request", "response")

    def __init__(self, filters: Filters) -> None:
        self.request: HeaderEdit | None = edit(filters.request)
        self.response: HeaderEdit | None = edit(filters.response)
        self.hostname = valid_hostname(filters.hostname)
        self.path = None if filters.path is None else PathEdit(filters.path)


class CompiledBackend:
    """A port of a Service."""

    __slots__ = ("filters", "namespace", "port", "service")

    def __init__(self, backend: Backend) -> None:
        self.namespace, self.service, self.port = backend.namespace, backend.service, backend.port
        self.filters = CompiledFilters(backend.filters)


class CompiledRule:
    """A rule of a route; `name` is the route's kind, namespace and name."""

    __slots__ = (
        "_backends",
        "_bounds",
        "_point",
        "backend_seconds",
        "filters",
        "name",
        "namespace",
        "redirect",
        "request_seconds",
    )

    def __init__(self, route: Route, rule: Rule) -> None:
        self.namespace = route.namespace
        self.name = f"{route.kind} {route.namespace}/{route.name}"
        self.filters = CompiledFilters(rule.filters)
        self.redirect: Redirect | None = rule.filters.redirect
        self.request_seconds, self.backend_seconds = rule.request_seconds or None, rule.backend_seconds or None
        weighted = [each for each in rule.backends if each.weight > 0]
        self._backends = [CompiledBackend(each) for each in weighted]
        self._bounds = list(itertools.accumulate(each.weight for each in weighted))
        self._point = 0.0

    def choose(self) -> CompiledBackend | None:
        """Return the backend of the next request by weight, None if there is none that can be used."""
        if not self._backends:
            return None
        if len(self._backends) == 1:
            chosen = self._backends[0]
        else:
            self._point = (self._point + _STEP) % 1.0
            chosen = self._backends[bisect_right(self._bounds, self._point * self._bounds[-1])]
        return chosen if chosen.service else None
