"""Client of the metrics APIs: metrics.k8s.io for CPU and memory, custom.metrics.k8s.io and external.metrics.k8s.io for the
rest.

The latter two are served by adapters that users install behind an APIService. Amounts come back in thousandths.
Upstream: pkg/controller/podautoscaler/metrics/client.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from control.controllers.autoscaling.replicas import MetricsError, PodMetric
from kube import duration
from kube.api import autoscaling_v2
from kube.client import Client
from kube.clock import Clock, parse_time
from kube.errors import StatusError
from kube.quantity import milli
from kube.resources import segment
from kube.selectors import from_label_selector

RESOURCE_ROOT = "/apis/metrics.k8s.io/v1beta1"
CUSTOM_ROOTS = ("/apis/custom.metrics.k8s.io/v1beta2", "/apis/custom.metrics.k8s.io/v1beta1")
EXTERNAL_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
DEFAULT_WINDOW = 60.0
"""Default window of a custom metric, in seconds."""

Identifier = autoscaling_v2.MetricIdentifier


def selector_text(metric: Identifier) -> str:
    """Return a metric's selector as a query has it; "" where it has none."""
    return str(from_label_selector(metric.selector)) if metric.selector is not None else ""


@dataclass(slots=True)
class ListedUsage:
    """The pods' usage as listed once for all resource metrics of an autoscaler, or the failure; None if it was not listed."""

    items: list[dict[str, Any]] | None = None
    failure: str = ""


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
        for item in listed.items or ():
            total = self._total(item, name, container)
            if total is not None:
                window = duration.parse(item.get("window") or "0")
                usages[item["metadata"]["name"]] = PodMetric(total, self._time(item), window)
        return usages

    async def _list(self, listed: ListedUsage, namespace: str, selector: str) -> None:
        try:
            found = await self._get(f"{RESOURCE_ROOT}/namespaces/{namespace}/pods", {"labelSelector": selector})
        except StatusError as error:
            listed.items = []
            listed.failure = f"unable to fetch metrics from resource metrics API: {error.message}"
            return
        listed.items = found.get("items") or []
        if not listed.items:
            listed.failure = "no metrics returned from resource metrics API"

    def _total(self, item: dict[str, Any], resource: str, container: str) -> int | None:
        chosen = [c for c in item.get("containers") or () if container in ("", c.get("name"))]
        if container and not chosen:
            meta = item["metadata"]
            raise MetricsError(
                f"container {container} not present in metrics for pod {meta.get('namespace')}/{meta.get('name')}"
            )
        values = [c.get("usage", {}).get(resource) for c in chosen]
        return None if any(value is None for value in values) else sum(milli(value) for value in values)

    async def pods(self, metric: Identifier, namespace: str, selector: str) -> dict[str, PodMetric]:
        """Return a custom metric of each pod."""
        query = {"labelSelector": selector, "metricLabelSelector": selector_text(metric)}
        items = await self._custom(f"/namespaces/{namespace}/pods/*/{segment(metric.name)}", query)
        return {
            item.get("describedObject", {}).get("name", ""): PodMetric(
                milli(item.get("value", 0)), self._time(item), float(item.get("windowSeconds") or DEFAULT_WINDOW)
            )
            for item in items
        }

    async def object(self, metric: Identifier, namespace: str, resource: str, name: str) -> int:
        """Return a custom metric of one object in a namespace, or of that namespace; `resource` is plural and group."""
        path = f"/namespaces/{namespace}/{resource}/{segment(name)}/{segment(metric.name)}"
        if resource == "namespaces":  # its own one, whatever the name: references lead out of no namespace
            path = f"/namespaces/{namespace}/metrics/{segment(metric.name)}"
        items = await self._custom(path, {"metricLabelSelector": selector_text(metric)})
        return milli(items[0].get("value", 0))

    async def _custom(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        why = "no custom metrics API (custom.metrics.k8s.io) registered"
        for root in CUSTOM_ROOTS:
            try:
                found = await self._get(root + path, query)
            except StatusError as error:
                if error.not_found and "could not find the requested resource" in error.message:
                    continue  # that version is not served
                why = error.message
                break
            items: list[dict[str, Any]] = found.get("items") or []
            if not items:
                raise MetricsError("no metrics returned from custom metrics API")
            return items
        raise MetricsError(f"unable to fetch metrics from custom metrics API: {why}")

    async def external(self, metric: Identifier, namespace: str) -> int:
        """Return the sum of an external metric's values."""
        path = f"{EXTERNAL_ROOT}/namespaces/{namespace}/{segment(metric.name)}"
        try:
            found = await self._get(path, {"labelSelector": selector_text(metric)})
        except StatusError as error:
            raise MetricsError(f"unable to fetch metrics from external metrics API: {error.message}") from error
        items = found.get("items") or []
        if not items:
            raise MetricsError("no metrics returned from external metrics API")
        return sum(milli(item.get("value", 0)) for item in items)

    async def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        body = await self._client.call("GET", path, query={key: value for key, value in query.items() if value})
        found: dict[str, Any] = msgspec.json.decode(body)
        return found

    def _time(self, item: Mapping[str, Any]) -> datetime:
        stamp = item.get("timestamp")
        return parse_time(stamp) if stamp else self._clock.now()
