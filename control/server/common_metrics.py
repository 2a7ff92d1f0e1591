"""Metrics that every component of the control plane serves: version, feature gates and health checks, by upstream's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from control.server.health import Health
from control.server.version import version
from kube.exposition import text_of

_BUILD = ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
_BUILD_LABELS = ["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler",
                 "platform"]  # fmt: skip


def build_info() -> Any:
    """Return the metric of the version."""
    from prometheus_client.core import GaugeMetricFamily

    build = GaugeMetricFamily("kubernetes_build_info", "What this server is; the value is 1.", labels=_BUILD_LABELS)
    found = version()
    build.add_metric([found[name] for name in _BUILD], 1)
    return build


def features(gates: Mapping[str, tuple[str, bool]]) -> Any:
    """Return the metric of feature gates, of which each has a stage and a state."""
    from prometheus_client.core import GaugeMetricFamily

    found = GaugeMetricFamily(
        "kubernetes_feature_enabled", "Whether a feature is on, by its stage.", labels=["name", "stage"]
    )
    for name, (stage, on) in gates.items():
        found.add_metric([name, stage], 1 if on else 0)
    return found


def checks(health: Health) -> Iterator[Any]:
    """Yield the metrics of /metrics/slis: how the health checks are, and how often they were so."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    now = GaugeMetricFamily("kubernetes_healthcheck", "Whether a check passes.", labels=["name", "type"])
    for name, root, passed in health.states():
        now.add_metric([name, root], 1 if passed else 0)
    yield now
    often = CounterMetricFamily("kubernetes_healthchecks", "Checks made.", labels=["name", "type", "status"])
    for (name, root, passed), count in health.counts.items():
        often.add_metric([name, root, "success" if passed else "error"], count)
    yield often


def exposed(families: Callable[[], Iterator[Any]], *, process: bool = False) -> bytes:
    """Return metric families in the exposition format; with `process` the process's own numbers too."""
    found = list(families())
    if process:
        from prometheus_client import CollectorRegistry, ProcessCollector

        found += ProcessCollector(registry=CollectorRegistry()).collect()
    return text_of(found)
