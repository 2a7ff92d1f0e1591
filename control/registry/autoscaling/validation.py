"""Checks of HorizontalPodAutoscalers: one source a metric, a target that fits it, and rules of scaling within bounds."""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.checks import Errors, FieldErrors, required_name
from control.registry.core.resources import container_resource_name
from control.registry.rows import Rows
from control.registry.rules import enum, maximum, minimum, not_negative, positive, require, require_name
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required, too_many
from kube.json_object import Object
from kube.quantity import Quantity, parse

_METRICS = ("ContainerResource", "External", "Object", "Pods", "Resource")
_SOURCES = ("object", "external", "pods", "resource", "containerResource")
_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800
_TYPE = ("apiVersion", "kind")
_MOST_METRICS, _MOST_POLICIES = 128, 128
"""Limits of the lists, which upstream does not have: each metric is a request or two every 15 seconds."""
_RAW_OR_SHARE = "a target raw value {} a target utilization"


def validate_autoscaler(spec: Object, path: str, old: Object | None = None) -> FieldErrors:
    """Check a spec as autoscaling/v2 has it; what is wrong in the stored one, `old`, may stay."""
    least = 0 if (old or {}).get("minReplicas") == 0 else 1
    target = spec.get("scaleTargetRef") or {}
    low, high = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if low is not None and low < least:
        yield invalid_value(f"{path}.minReplicas", low, f"must be greater than or equal to {least}")
    if high < 1:
        yield invalid_value(f"{path}.maxReplicas", high, "must be greater than 0")
    if low is not None and high < low:
        yield invalid_value(f"{path}.maxReplicas", high, "must be greater than or equal to `minReplicas`")
    yield from _REFERENCE(target, f"{path}.scaleTargetRef")
    if old is None or any(target.get(key) != (old.get("scaleTargetRef") or {}).get(key) for key in _TYPE):
        grouped = target.get("kind") != "ReplicationController"
        yield from _api_version(target, f"{path}.scaleTargetRef", grouped=grouped)
    metrics = spec.get("metrics") or ()
    if len(metrics) > _MOST_METRICS:
        yield too_many(f"{path}.metrics", len(metrics), _MOST_METRICS)
        return
    for index, metric in enumerate(metrics):
        yield from _metric(metric, f"{path}.metrics[{index}]")
    if not any(_api_version(described, "") for _, described in _described(old or {})):
        for index, described in _described(spec):
            yield from _api_version(described, f"{path}.metrics[{index}].object.describedObject")
    if low == 0 and not any(m.get("type") in ("Object", "External") for m in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden_field(f"{path}.metrics", detail)
    behavior = spec.get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        if behavior.get(direction) is not None:
            yield from _rules(behavior[direction], f"{path}.behavior.{direction}")


_REFERENCE = Rows(("{kind,name}", require_name(names.path_segment)))


def _described(spec: Object) -> Iterator[tuple[int, Object]]:
    """Yield the objects that metrics describe, with the metrics' indexes."""
    for index, metric in enumerate(spec.get("metrics") or ()):
        if metric.get("type") == "Object" and metric.get("object") is not None:
            yield index, metric["object"].get("describedObject") or {}


def _api_version(reference: Object, path: str, *, grouped: bool = False) -> Errors:
    """Check the apiVersion of a reference; `grouped` if it must name a group."""
    given = reference.get("apiVersion") or ""
    if given.count("/") > 1:
        return [invalid_value(f"{path}.apiVersion", given, f"unexpected GroupVersion string: {given}")]
    if grouped and not given.rpartition("/")[0]:
        return [invalid_value(f"{path}.apiVersion", given, "apiVersion must specify API group")]
    return []


_WINDOW = Rows(
    ("stabilizationWindowSeconds", minimum(0, "must be greater than or equal to zero")),
    ("stabilizationWindowSeconds", maximum(_LONGEST_WINDOW, f"must be less than or equal to {_LONGEST_WINDOW}")),
    ("selectPolicy?", enum("Disabled", "Max", "Min")),
    ("policies", require("must specify at least one Policy")),
)
_POLICIES = Rows(
    (f"policies[*{_MOST_POLICIES}].type", enum("Percent", "Pods")),
    (f"policies[*{_MOST_POLICIES}].{{value,periodSeconds}}", positive("must be greater than zero")),
    (
        f"policies[*{_MOST_POLICIES}].periodSeconds",
        maximum(_LONGEST_PERIOD, f"must be less than or equal to {_LONGEST_PERIOD}"),
    ),
)


def _rules(rules: Object, path: str) -> FieldErrors:
    yield from _WINDOW(rules, path)
    yield from _POLICIES(rules, path)
    tolerance, few = rules.get("tolerance"), len(rules.get("policies") or ()) <= _MOST_POLICIES
    if few and tolerance is not None and parse(tolerance) < 0:
        yield invalid_value(f"{path}.tolerance", str(tolerance), "must be greater than or equal to 0")


def _metric(metric: Object, path: str) -> Errors:
    kind = metric.get("type") or ""
    errors = [] if kind else [required(f"{path}.type", "must specify a metric source type")]
    if kind not in _METRICS:
        errors.append(not_supported(f"{path}.type", kind, _METRICS))
    present = [key for key in _SOURCES if metric.get(key) is not None]
    if present:
        errors += _source(present[0], metric[present[0]], f"{path}.{present[0]}")
    wanted = kind[:1].lower() + kind[1:]
    if kind in _METRICS and wanted not in present:
        errors.append(required(f"{path}.{wanted}", "must populate information for the given metric source"))
    if len(present) != 1:
        detail = "must populate the given metric source only"
        errors += [forbidden_field(f"{path}.{key}", detail) for key in present if key != wanted]
    return errors


def _source(kind: str, source: Object, path: str) -> FieldErrors:
    target, where = source.get("target") or {}, f"{path}.target"
    value, average, share = (target.get(key) for key in ("value", "averageValue", "averageUtilization"))
    if kind == "object":
        yield from _REFERENCE(source.get("describedObject") or {}, f"{path}.describedObject")
    if kind in ("resource", "containerResource"):
        if not source.get("name"):
            yield required(f"{path}.name", "must specify a resource name")
        elif kind == "containerResource":
            yield from container_resource_name(source["name"], f"{path}.name")
        if kind == "containerResource":
            container = source.get("container")
            yield from required_name(f"{path}.container", container, names.dns1123_label, "must specify a container")
    else:
        name = (source.get("metric") or {}).get("name")
        yield from required_name(f"{path}.metric.name", name, names.path_segment, "must specify a metric name")
    yield from _TARGET(target, where)
    if kind in ("resource", "containerResource"):
        if share is None and average is None:
            yield required(f"{where}.averageUtilization", "must set either " + _RAW_OR_SHARE.format("or"))
        if share is not None and average is not None:
            yield forbidden_field(f"{where}.averageValue", "may not set both " + _RAW_OR_SHARE.format("and"))
    elif kind == "pods" and average is None:
        yield required(f"{where}.averageValue", "must specify a positive target averageValue")
    elif kind == "object" and value is None and average is None:
        yield required(f"{where}.averageValue", "must set either a target value or averageValue")
    elif kind == "external":
        if value is None and average is None:
            yield required(f"{where}.averageValue", "must set either a target value for metric or a per-pod target")
        if value is not None and average is not None:
            yield forbidden_field(f"{where}.value", "may not set both a target value for metric and a per-pod target")


def _target_type(kind: str | None, path: str) -> FieldErrors:
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid_value(path, kind or "", "must be either Utilization, Value, or AverageValue")


def _positive_quantity(amount: Quantity, path: str) -> FieldErrors:
    if parse(amount) <= 0:
        yield invalid_value(path, str(amount), "must be positive")


_TARGET = Rows(
    ("type", require("must specify a metric target type"), _target_type),
    ("{value,averageValue}?", _positive_quantity),
    ("averageUtilization", minimum(1, "must be greater than 0")),
)
_STATUS = Rows(("status.{currentReplicas,desiredReplicas}", not_negative))


def validate_autoscaler_status(obj: Object) -> Errors:
    return _STATUS.errors(obj)
