"""Checks of a ResourceQuota's scopes and scope selectors, and whether its resources support them."""

from __future__ import annotations

from control.registry.checks import Errors
from kube.errors import invalid_value, required
from kube.json_object import Object

_POD_SCOPES = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
)
_SCOPES = (*_POD_SCOPES, "VolumeAttributesClass")
_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods")
_STORAGE = ("persistentvolumeclaims", "requests.storage")
_STANDARD = (
    *_COMPUTE,
    *_STORAGE,
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
)
_PAIRS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_EXISTS_ONLY = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def validate_scopes(spec: Object, path: str) -> Errors:
    """Check scopes and scopeSelector of a quota's spec."""
    # Others fit any scope.
    hard, scopes = sorted({*_STANDARD} & {*(spec.get("hard") or ())}), spec.get("scopes") or []
    where = f"{path}.scopes"
    errors: Errors = []
    for scope in dict.fromkeys(scopes):
        if scope not in _SCOPES:
            errors.append(invalid_value(where, scopes, "unsupported scope"))
        errors += [invalid_value(where, scopes, _UNFIT) for name in hard if not _fits(scope, name)]
    errors += [invalid_value(where, scopes, "conflicting scopes") for pair in _PAIRS if pair <= set(scopes)]
    selector = spec.get("scopeSelector")
    return errors + (_selector(selector, hard, f"{path}.scopeSelector") if selector is not None else [])


_UNFIT = "unsupported scope applied to resource"


def _fits(scope: str, name: str) -> bool:
    """Return whether a resource supports a scope; resources that are not standard are not checked."""
    if name not in _STANDARD:
        return True
    if scope == "BestEffort":
        return name == "pods"
    if scope == "VolumeAttributesClass":
        return name in _STORAGE
    return scope not in _SCOPES or name in _COMPUTE


def _selector(selector: Object, hard: list[str], path: str) -> Errors:
    where, errors = f"{path}.matchExpressions", []
    named: set[str] = set()
    for requirement in selector.get("matchExpressions") or ():
        scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        values = requirement.get("values") or []
        if scope not in _SCOPES:
            errors.append(invalid_value(f"{where}.scopeName", scope, "unsupported scope"))
        errors += [invalid_value(where, selector, _UNFIT) for name in hard if not _fits(scope, name)]
        if scope in _POD_SCOPES and scope != "PriorityClass" and operator != "Exists":
            errors.append(invalid_value(f"{where}.operator", operator, _EXISTS_ONLY))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{where}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid_value(f"{where}.values", values, detail))
        else:
            errors.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
        named.add(scope)
    return errors + [invalid_value(where, selector, "conflicting scopes") for pair in _PAIRS if pair <= named]
