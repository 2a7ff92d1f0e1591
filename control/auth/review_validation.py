"""Validates the spec of an access review (pkg/apis/authorization/validation)."""

from __future__ import annotations

from kube.errors import FieldError, forbidden_field, invalid, invalid_value, required
from kube.json_object import Object

_ATTRIBUTES = "spec.resourceAttributes"


def check(kind: str, obj: Object) -> None:
    """Raise 422 with everything that is wrong with a review of a kind, all of its metadata included."""
    spec, meta = obj.get("spec") or {}, obj.get("metadata") or {}
    local = kind == "LocalSubjectAccessReview"
    problems = _spec(spec, own=kind == "SelfSubjectAccessReview")
    if {key for key, value in meta.items() if value} - ({"namespace"} if local else set()):
        problems.append(
            invalid_value("metadata", meta, "must be empty except for namespace" if local else "must be empty")
        )
    asked = spec.get("resourceAttributes")
    if local and asked is not None and asked.get("namespace", "") != meta.get("namespace", ""):
        place, why = f"{_ATTRIBUTES}.namespace", "must match metadata.namespace"
        problems.append(invalid_value(place, asked.get("namespace", ""), why))
    if local and spec.get("nonResourceAttributes") is not None:
        why = "disallowed on this kind of request"
        problems.append(invalid_value("spec.nonResourceAttributes", spec["nonResourceAttributes"], why))
    if problems:
        raise invalid("authorization.k8s.io", kind, "", problems)


def _spec(spec: Object, *, own: bool) -> list[FieldError]:
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    problems = []
    if asked is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        problems.append(invalid_value("spec.nonResourceAttributes", path, why))
    if asked is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problems.append(invalid_value(_ATTRIBUTES, None, why))
    if not own and not spec.get("user") and not spec.get("groups"):
        problems.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    for part in ("fieldSelector", "labelSelector"):
        if (asked or {}).get(part) is not None:
            problems += _selector(asked[part], f"{_ATTRIBUTES}.{part}")  # type: ignore[index]
    return problems


def _selector(selector: Object, path: str) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or ()
    problems = []
    if raw and requirements:
        problems.append(invalid_value(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        problems.append(required(f"{path}.requirements", why))
    for index, requirement in enumerate(requirements):
        place, operator = f"{path}.requirements[{index}]", requirement.get("operator")
        if not requirement.get("key"):
            problems.append(required(f"{place}.key", "must be specified"))
        if operator in ("In", "NotIn") and not requirement.get("values"):
            problems.append(required(f"{place}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        if operator in ("Exists", "DoesNotExist") and requirement.get("values"):
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            problems.append(forbidden_field(f"{place}.values", why))
    return problems
