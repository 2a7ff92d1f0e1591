"""Builds /metrics and /metrics/slis: request metrics, process counters, and values that are read at the scrape.

Names and labels are upstream's, so that dashboards and alerts written for kube-apiserver work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from control.fairness import metrics as fairness_metrics
from control.fairness.fairness import Fairness
from control.server import common_metrics
from control.server.health import Health
from control.server.metrics import RequestMetrics
from control.storage.resource_cache import ResourceCache
from kube import counters


class Exposition:
    """All metrics of one server."""

    def __init__(
        self,
        metrics: RequestMetrics,
        fairness: Fairness,
        health: Health,
        caches: Callable[[], Iterable[ResourceCache]],
        names: dict[str, tuple[str, str]],
        extensions: Callable[[], Iterable[tuple[str, bool]]],
        database: Path | None,
        gates: Mapping[str, tuple[str, bool]],
    ) -> None:
        self._metrics, self._fairness = metrics, fairness
        self._health, self._caches, self._names = health, caches, names
        self._extensions, self._database, self._gates = extensions, database, gates

    def metrics(self) -> bytes:
        """Return /metrics."""
        return common_metrics.exposed(self._families, process=True)

    def slis(self) -> bytes:
        """Return /metrics/slis: how the health checks are, and how often they were so."""
        return common_metrics.exposed(lambda: common_metrics.checks(self._health))

    def _families(self) -> Iterator[Any]:
        yield from self._metrics.collect()
        yield from fairness_metrics.collect(self._fairness)
        yield from self._objects()
        yield from self._state()
        yield from counters.families()

    def _objects(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        old = GaugeMetricFamily("apiserver_storage_objects", "Objects by resource.", labels=["resource"])
        new = GaugeMetricFamily("apiserver_resource_objects", "Objects by resource.", labels=["group", "resource"])
        for cache in self._caches():
            group, resource = self._names.get(cache.prefix) or _of_custom(cache.prefix)
            old.add_metric([f"{resource}.{group}" if group else resource], len(cache))
            new.add_metric([group, resource], len(cache))
        yield old
        yield new

    def _state(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        yield common_metrics.build_info()
        yield common_metrics.features(self._gates)
        away = GaugeMetricFamily(
            "aggregator_unavailable_apiservice", "APIServices that do not answer.", labels=["name"]
        )
        for name, available in self._extensions():
            away.add_metric([name], 0 if available else 1)
        yield away
        if self._database is not None:
            size = GaugeMetricFamily(
                "apiserver_storage_size_bytes", "Size of the database's file.", labels=["storage_cluster_id"]
            )
            size.add_metric(["sqlite"], os.path.getsize(self._database))
            yield size


def _of_custom(prefix: str) -> tuple[str, str]:
    """Return group and resource of a custom resource's folder, /registry/GROUP/PLURAL/."""
    parts = prefix.strip("/").split("/")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", parts[-1])
