"""Client of the metrics APIs: metrics.k8s.io for CPU and memory, custom.metrics.k8s.io and external.metrics.k8s.io for the
rest.

The latter two are served by adapters that users install behind an APIService, as metrics.k8s.io may be. What they answer is
limited, and what is no metric is a failure of its API. Amounts come back in thousandths.
Upstream: pkg/controller/podautoscaler/metrics/client.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from control.controllers.autoscaling.replicas import MetricsError, PodMetric
from kube import duration
from kube.api import autoscaling_v2
from kube.client import Client, answered, decoded
from kube.clock import Clock, parse_time
from kube.errors import StatusError
from kube.quantity import milli
from kube.resources import segment
from kube.selectors import from_label_selector

T = TypeVar("T")
RESOURCE_ROOT = "/apis/metrics.k8s.io/v1beta1"
CUSTOM_ROOTS = ("/apis/custom.metrics.k8s.io/v1beta2", "/apis/custom.metrics.k8s.io/v1beta1")
EXTERNAL_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
DEFAULT_WINDOW = 60.0
"""Default window of a custom metric, in seconds."""
ANSWER_BYTES = 8 << 20
"""The longest answer: usage of the pods of a namespace, of which ten thousand take 5 MiB."""

Identifier = autoscaling_v2.MetricIdentifier


def selector_text(metric: Identifier) -> str:
    """Return a metric's selector as a query has it; "" where it has none."""
    return str(from_label_selector(metric.selector)) if metric.selector is not None else ""


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Reference(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Value(msgspec.Struct, rename="camel"):
    """A value of a custom or external metric."""

    value: str | int | float = 0
    described_object: _Reference = msgspec.field(default_factory=_Reference)
    timestamp: str | None = None
    window_seconds: int | None = None


class _Container(msgspec.Struct):
    name: str = ""
    usage: dict[str, str | int | float] = {}


class _PodUsage(msgspec.Struct):
    """PodMetrics."""

    metadata: _Reference
    timestamp: str | None = None
    window: str | None = None
    containers: list[_Container] | None = None


@dataclass(slots=True)
class ListedUsage:
    """The pods' usage as listed once for all resource metrics of an autoscaler, or the failure; None if it was not listed."""

    items: Sequence[_PodUsage] | None = None
    failure: str = ""


@contextmanager
def _failures_of(api: str) -> Iterator[None]:
    """Raise what cannot be requested or read as MetricsError."""
    try:
        yield
    except StatusError as error:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {error.message}") from error
    except (ValueError, OverflowError) as error:
        raise MetricsError(f"unable to fetch metrics from {api} metrics API: {error}") from error


class MetricsClient:
    """One client for the three APIs; every failure is a MetricsError in upstream's words."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def resource(
        self, name: str, namespace: str, selector: str, container: str = "", listed: ListedUsage | None = None
    ) -> dict[str, PodMetric]:
        """Return what each pod, or one container of each, uses of cpu or memory; `listed` is used, or filled in."""
        if listed is None:
            listed = ListedUsage()
        if listed.items is None:
            await self._list(listed, namespace, selector)
        if listed.failure:
            raise MetricsError(listed.failure)
        usages: dict[str, PodMetric] = {}
        with _failures_of("resource"):
            for item in listed.items or ():
                total = self._total(item, name, container)
                if total is not None:
                    window = duration.parse(item.window or "0")
                    usages[item.metadata.name] = PodMetric(total, self._time(item.timestamp), window)
        return usages

    async def _list(self, listed: ListedUsage, namespace: str, selector: str) -> None:
        path, query = f"{RESOURCE_ROOT}/namespaces/{segment(namespace)}/pods", {"labelSelector": selector}
        try:
            with _failures_of("resource"):
                listed.items = await self._get(path, query, _PodUsage)
        except MetricsError as error:
            listed.items, listed.failure = (), str(error)
            return
        if not listed.items:
            listed.failure = "no metrics returned from resource metrics API"

    def _total(self, item: _PodUsage, resource: str, container: str) -> int | None:
        chosen = [c for c in item.containers or () if container in ("", c.name)]
        if container and not chosen:
            pod = f"{item.metadata.namespace}/{item.metadata.name}"
            raise MetricsError(f"container {container} not present in metrics for pod {pod}")
        values = [c.usage[resource] for c in chosen if resource in c.usage]
        return None if len(values) < len(chosen) else sum(map(milli, values))

    async def pods(self, metric: Identifier, namespace: str, selector: str) -> dict[str, PodMetric]:
        """Return a custom metric of each pod."""
        query = {"labelSelector": selector, "metricLabelSelector": selector_text(metric)}
        items = await self._custom(f"/namespaces/{segment(namespace)}/pods/*/{segment(metric.name)}", query)
        with _failures_of("custom"):
            return {
                item.described_object.name: PodMetric(
                    milli(item.value), self._time(item.timestamp), float(item.window_seconds or DEFAULT_WINDOW)
                )
                for item in items
            }

    async def object(self, metric: Identifier, namespace: str, resource: str, name: str) -> int:
        """Return a custom metric of one object in a namespace, or of that namespace; `resource` is plural and group."""
        path = f"/namespaces/{segment(namespace)}/{resource}/{segment(name)}/{segment(metric.name)}"
        if resource == "namespaces":  # its own one, whatever the name: references lead out of no namespace
            path = f"/namespaces/{segment(namespace)}/metrics/{segment(metric.name)}"
        items = await self._custom(path, {"metricLabelSelector": selector_text(metric)})
        with _failures_of("custom"):
            return milli(items[0].value)

    async def _custom(self, path: str, query: Mapping[str, str]) -> Sequence[_Value]:
        why = "no custom metrics API (custom.metrics.k8s.io) registered"
        for root in CUSTOM_ROOTS:
            try:
                items = await self._get(root + path, query, _Value)
            except StatusError as error:
                if error.not_found and "could not find the requested resource" in error.message:
                    continue  # that version is not served
                why = error.message
                break
            if not items:
                raise MetricsError("no metrics returned from custom metrics API")
            return items
        raise MetricsError(f"unable to fetch metrics from custom metrics API: {why}")

    async def external(self, metric: Identifier, namespace: str) -> int:
        """Return the sum of an external metric's values."""
        path = f"{EXTERNAL_ROOT}/namespaces/{segment(namespace)}/{segment(metric.name)}"
        with _failures_of("external"):
            items = await self._get(path, {"labelSelector": selector_text(metric)}, _Value)
            if not items:
                raise MetricsError("no metrics returned from external metrics API")
            return sum(milli(item.value) for item in items)

    async def _get(self, path: str, query: Mapping[str, str], shape: type[T]) -> Sequence[T]:
        given = {key: value for key, value in query.items() if value}
        found = answered(await self._client.call("GET", path, query=given, most_bytes=ANSWER_BYTES), _List, path)
        return [item async for item in decoded(found.items or (), shape, path)]

    def _time(self, stamp: str | None) -> datetime:
        return parse_time(stamp) if stamp else self._clock.now()
