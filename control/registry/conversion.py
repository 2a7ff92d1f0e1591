"""Resources that more than one group version shows: stored once, converted on the way in and out.

Events live in the store as core/v1 and are shown as events.k8s.io/v1 too; horizontal pod autoscalers are stored as
autoscaling/v2 and shown as v1. The first row of the resource table is the stored version. Conversions are pure; the dict
that comes in is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.resources import RESOURCES, Resource

Object = dict[str, Any]
Convert = Callable[[Object], Object]
METRICS = "autoscaling.alpha.kubernetes.io/metrics"


@dataclass(frozen=True, slots=True)
class Conversion:
    """From the stored version to a served one and back."""

    stored: Resource
    to_served: Convert
    to_stored: Convert


@functools.cache
def conversion(resource: Resource) -> Conversion | None:
    """Return how a resource is converted, None where it is stored as it is served."""
    ways = _CONVERSIONS.get((resource.api_version, resource.kind))
    if ways is None:
        return None
    stored = next(r for r in RESOURCES if r.storage_prefix == resource.storage_prefix)
    to_served, to_stored = ways
    return Conversion(stored, to_served, to_stored)


_EVENT_NAMES = {
    "message": "note",
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_NAMES_BACK = {new: old for old, new in _EVENT_NAMES.items()}


def _event_to_served(obj: Object) -> Object:
    found = {_EVENT_NAMES.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


def _event_to_stored(obj: Object) -> Object:
    found = {_EVENT_NAMES_BACK.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "v1", "kind": "Event"}


def _hpa_to_v1(obj: Object) -> Object:
    """The CPU target has a field of its own in v1; what else there is travels in an annotation."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    others = []
    for metric in spec.pop("metrics", None) or []:
        percent = _cpu_percent(metric, "target")
        if percent is not None and "targetCPUUtilizationPercentage" not in spec:
            spec["targetCPUUtilizationPercentage"] = percent
        else:
            others.append(metric)
    for metric in status.pop("currentMetrics", None) or []:
        percent = _cpu_percent(metric, "current")
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
    status.pop("conditions", None)
    spec.pop("behavior", None)
    metadata = dict(obj.get("metadata") or {})
    if others:
        annotations = dict(metadata.get("annotations") or {})
        annotations[METRICS] = msgspec.json.encode(others).decode()
        metadata["annotations"] = annotations
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _hpa_to_v2(obj: Object) -> Object:
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metadata = dict(obj.get("metadata") or {})
    metrics: list[Object] = []
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        metrics.append(_cpu_metric("target", {"type": "Utilization", "averageUtilization": target}))
    annotations = dict(metadata.get("annotations") or {})
    if METRICS in annotations:
        try:
            metrics += msgspec.json.decode(annotations.pop(METRICS), type=list[dict[str, Any]])
        except msgspec.DecodeError:
            pass  # somebody wrote it by hand, and wrongly: it means nothing
        metadata["annotations"] = annotations
    if metrics:
        spec["metrics"] = metrics
    current = status.pop("currentCPUUtilizationPercentage", None)
    if current is not None:
        status["currentMetrics"] = [_cpu_metric("current", {"averageUtilization": current})]
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _cpu_metric(part: str, value: Object) -> Object:
    return {"type": "Resource", "resource": {"name": "cpu", part: value}}


def _cpu_percent(metric: Object, part: str) -> int | None:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    percent: int | None = (resource.get(part) or {}).get("averageUtilization")
    return percent


_CONVERSIONS: dict[tuple[str, str], tuple[Convert, Convert]] = {
    ("events.k8s.io/v1", "Event"): (_event_to_served, _event_to_stored),
    ("autoscaling/v1", "HorizontalPodAutoscaler"): (_hpa_to_v1, _hpa_to_v2),
}
