"""HorizontalPodAutoscalers between autoscaling/v2, as they are stored, and autoscaling/v1.

In v1 only the CPU target has a field. Everything else travels in annotations, in the shapes that upstream's v1 types have
(pkg/apis/autoscaling/v1/conversion.go): metrics and what they measured under v1's own field names, conditions as they
are, the behavior under the names that Go gives to fields without tags. These values are text to the decoder of the body, so
they are decoded here, by autoscaling/v2's types: wrong types, numbers too large for their type, invalid quantities and times,
and too deep nesting. An annotation that does not fit its type means nothing, as upstream; an object of a wrong type would be
unreadable for every client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from control.decoding.decode import load_json
from control.decoding.typed import to_object
from kube import errors
from kube.api.autoscaling_v2 import HorizontalPodAutoscalerSpec as Spec
from kube.api.autoscaling_v2 import HorizontalPodAutoscalerStatus as Status
from kube.json_object import Object
from kube.value_count import MOST_VALUES, marks, structure


def check_values(texts: list[str]) -> None:
    """Raise 413 if annotations together have more values than a body may have."""
    bodies = [text.encode(errors="replace") for text in texts]
    if sum(map(marks, bodies)) >= MOST_VALUES and sum(marks(structure(body)) for body in bodies) >= MOST_VALUES:
        raise errors.too_much(f"more than {MOST_VALUES} values")


def typed_list(
    text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Object]
) -> list[Object]:
    """Return a list of a spec or status that an annotation holds, empty if one item does not fit its type."""

    def converted(value: Any) -> list[Object]:
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [to_v2(item) for item in value]

    return _typed(text, struct, field, converted) or []


def typed_object(
    text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Object]
) -> Object | None:
    """Return an object of a spec or status that an annotation holds, None if it does not fit its type."""
    found: Object | None = _typed(text, struct, field, to_v2)
    return found


def json_object(value: Any) -> Mapping[str, Any]:
    """Return a JSON value that must be an object; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _typed(text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Any]) -> Any:
    if not text:
        return None
    try:
        found = to_object({field: to_v2(load_json(text.encode()))}, struct)
    except (ValueError, msgspec.ValidationError):
        return None
    return found.get(field)


_ALPHA = "autoscaling.alpha.kubernetes.io/"
METRICS, CURRENT = _ALPHA + "metrics", _ALPHA + "current-metrics"
CONDITIONS, BEHAVIOR = _ALPHA + "conditions", _ALPHA + "behavior"
_KEYS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
# v1's names of a metric's parts: (the v2 part, its field) -> v1 field, for what is wanted and for what was measured.
_VALUES = {
    "Resource": {"averageUtilization": "{}AverageUtilization", "averageValue": "{}AverageValue"},
    "ContainerResource": {"averageUtilization": "{}AverageUtilization", "averageValue": "{}AverageValue"},
    "Pods": {"averageValue": "{}AverageValue"},
    "Object": {"value": "{}Value", "averageValue": "averageValue"},
    "External": {"value": "{}Value", "averageValue": "{}AverageValue"},
}
_SELECTORS = {"Pods": "selector", "Object": "selector", "External": "metricSelector"}


def to_v1(obj: Object) -> Object:
    """Return the v1 view of a stored autoscaler; the dict that comes in is left as it is."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metadata = dict(obj.get("metadata") or {})
    noted: dict[str, Any] = {}
    others = []
    for metric in spec.pop("metrics", None) or []:
        percent = _cpu_percent(metric, "target")
        if percent is None:
            others.append(_metric_to_v1(metric, "target"))
        elif "targetCPUUtilizationPercentage" not in spec:
            spec["targetCPUUtilizationPercentage"] = percent
    if others:
        noted[METRICS] = others
    current = status.pop("currentMetrics", None) or []
    for metric in current:
        percent = _cpu_percent(metric, "current")
        if percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
    if current:
        noted[CURRENT] = [_metric_to_v1(metric, "current") for metric in current]
    if conditions := status.pop("conditions", None):
        noted[CONDITIONS] = conditions
    if behavior := spec.pop("behavior", None):
        noted[BEHAVIOR] = _renamed(behavior, str.capitalize)
    if noted:
        texts = {key: msgspec.json.encode(value).decode() for key, value in noted.items()}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **texts}
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def to_v2(obj: Object) -> Object:
    """Return what to store for a v1 autoscaler."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    metadata = dict(obj.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    noted = {key: annotations.pop(key, None) for key in (METRICS, CURRENT, CONDITIONS, BEHAVIOR)}
    check_values([text for text in noted.values() if text])
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    metrics = typed_list(noted[METRICS], Spec, "metrics", lambda metric: _metric_to_v2(metric, "target"))
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        wanted = {"type": "Utilization", "averageUtilization": target}
        metrics.insert(0, {"type": "Resource", "resource": {"name": "cpu", "target": wanted}})
    if metrics:
        spec["metrics"] = metrics
    if behavior := typed_object(noted[BEHAVIOR], Spec, "behavior", lambda value: _renamed(value, str.lower)):
        spec["behavior"] = behavior
    measured = typed_list(noted[CURRENT], Status, "currentMetrics", lambda metric: _metric_to_v2(metric, "current"))
    percent = status.pop("currentCPUUtilizationPercentage", None)
    if percent is not None and not any(_cpu_percent(metric, "current") is not None for metric in measured):
        measured.insert(
            0, {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}
        )
    if measured:
        status["currentMetrics"] = measured
    if conditions := typed_list(noted[CONDITIONS], Status, "conditions", lambda condition: condition):
        status["conditions"] = conditions
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _metric_to_v1(metric: Object, part: str) -> Object:
    kind, key, source, shown = _begun(metric)
    if source is None:
        return dict(metric)
    if kind == "Object":
        shown["target"] = source.get("describedObject") or {}
    if kind in _SELECTORS:
        identifier = source.get("metric") or {}
        shown["metricName"] = identifier.get("name", "")
        if identifier.get("selector") is not None:
            shown[_SELECTORS[kind]] = identifier["selector"]
    values = source.get(part) or {}
    for field, name in _VALUES[kind].items():
        if values.get(field) is not None:
            shown[name.format(part)] = values[field]
    return {"type": kind, key: shown}


def _begun(metric: Object) -> tuple[str, str, Object | None, Object]:
    """Return a metric's type, its part's name, that part (None if it lacks it), and what both versions call alike.

    Raises ValueError for one that is no object, or whose type or part has another type.
    """
    kind = json_object(metric).get("type")
    if kind is None:
        kind = ""
    if not isinstance(kind, str):
        raise ValueError("the type is no text")
    key = _KEYS.get(kind, "")
    source = metric.get(key)
    if source is None:
        return kind, key, None, {}
    return kind, key, source, {name: source[name] for name in ("name", "container") if name in json_object(source)}


def _metric_to_v2(metric: Object, part: str) -> Object:
    kind, key, source, shown = _begun(metric)
    if source is None:
        return dict(metric)
    if kind == "Object":
        described = source.get("target")
        shown["describedObject"] = {} if described is None else described
    if kind in _SELECTORS:
        shown["metric"] = {"name": source.get("metricName", "")}
        if source.get(_SELECTORS[kind]) is not None:
            shown["metric"]["selector"] = source[_SELECTORS[kind]]
    values = {f: source[n.format(part)] for f, n in _VALUES[kind].items() if source.get(n.format(part)) is not None}
    if part == "target":
        if values.get("averageUtilization") is not None:
            values = {"type": "Utilization", **values}
        elif values.get("averageValue") is not None:
            values = {"type": "AverageValue", "averageValue": values["averageValue"]}
        else:
            values = {"type": "Value", **values}
    shown[part] = values
    return {"type": kind, key: shown}


def _cpu_percent(metric: Object, part: str) -> int | None:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    percent: int | None = (resource.get(part) or {}).get("averageUtilization")
    return percent


def _renamed(value: Any, change: Any) -> Any:
    """Change the first letter of every field's name: behavior has none that are the user's own."""
    if isinstance(value, dict):
        return {change(key[:1]) + key[1:]: _renamed(item, change) for key, item in value.items() if item is not None}
    return [_renamed(item, change) for item in value] if isinstance(value, list) else value
