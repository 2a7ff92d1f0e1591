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
from control.server.finite import version
from control.server.health import Health
from control.server.metrics import RequestMetrics, exposed
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
        return exposed(self._families, process=True)

    def slis(self) -> bytes:
        """Return /metrics/slis: how the health checks are, and how often they were so."""
        return exposed(self._checks)

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

        build_info = version()
        build = GaugeMetricFamily(
            "kubernetes_build_info",
            "What this server is; the value is 1.",
            labels=["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version",
                    "compiler", "platform"],
        )  # fmt: skip
        names = ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion")
        build.add_metric([build_info[name] for name in (*names, "compiler", "platform")], 1)
        yield build
        gates = GaugeMetricFamily(
            "kubernetes_feature_enabled", "Whether a feature is on, by its stage.", labels=["name", "stage"]
        )
        for name, (stage, on) in self._gates.items():
            gates.add_metric([name, stage], 1 if on else 0)
        yield gates
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

    def _checks(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = GaugeMetricFamily("kubernetes_healthcheck", "Whether a check passes.", labels=["name", "type"])
        for name, root, passed in self._health.states():
            now.add_metric([name, root], 1 if passed else 0)
        yield now
        often = CounterMetricFamily("kubernetes_healthchecks", "Checks made.", labels=["name", "type", "status"])
        for (name, root, passed), count in self._health.counts.items():
            often.add_metric([name, root, "success" if passed else "error"], count)
        yield often


def _of_custom(prefix: str) -> tuple[str, str]:
    """Return group and resource of a custom resource's folder, /registry/GROUP/PLURAL/."""
    parts = prefix.strip("/").split("/")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", parts[-1])
