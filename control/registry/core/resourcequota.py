"""ResourceQuotas: limits of a namespace's total usage, and their scopes, which not every resource supports."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.checks import Errors
from control.registry.core.resources import COUNTED, STANDARD, amount_of, standard_name
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, created, name_of
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object
from kube.quantity import canonical

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


_PREFIXES = ("requests.", "limits.", "hugepages-")


class ResourceQuotaStrategy(Strategy):
    returns_deleted = True
    columns = (
        NAME,
        Column("Request", description="What is used of what may be asked for."),
        Column("Limit", description="What is used of what limits may come to."),
        AGE,
    )
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        for name, amount in (spec.get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            errors += standard_name(name, path)
            if "/" not in name and not name.startswith(_PREFIXES) and name not in (*STANDARD, *COUNTED):
                errors.append(invalid_value(path, name, "must be a standard resource for quota"))
            errors += amount_of(name, amount, path)
        return errors + validate_scopes(spec, "spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        now, was = (set((o.get("spec") or {}).get("scopes") or ()) for o in (obj, old))
        errors = self.validate(obj)
        if now != was:
            errors.append(invalid_value("spec.scopes", sorted(now), "field is immutable"))
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status, errors = obj.get("status") or {}, []
        for key in ("hard", "used"):
            for name, amount in (status.get(key) or {}).items():
                path = f"status.{key}[{name}]"
                errors += standard_name(name, path) + amount_of(name, amount, path)
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        shown: dict[bool, list[str]] = {True: [], False: []}
        for name in sorted(hard):
            text = f"{name}: {canonical(used.get(name, 0))}/{canonical(hard[name])}"
            shown[name.startswith("limits.")].append(text)
        return [name_of(obj), ", ".join(shown[False]), ", ".join(shown[True]), age(created(obj), now)]
