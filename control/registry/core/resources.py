"""Checks of resource requirements: known or fully qualified names, no negative amounts, requests within limits."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

from control.registry.checks import Errors, each, quantity
from control.registry.strategy import Object
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required
from kube.quantity import Quantity, QuantityError, parse, remainder

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_NATIVE_DOMAIN = "kubernetes.io"
HUGE = "hugepages-"
_COUNTED = (
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_KNOWN = (*_STANDARD, *_COUNTED, "storage")


def validate_requirements(
    resources: Object | None, path: str, claims: Collection[str] = (), pod_level: bool = False
) -> Errors:
    """Check limits against requests of a container, or of a pod as a whole; `claims` are the pod's resource claims."""
    if not resources:
        return []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: Errors = []
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{side}[{name}]"
            errors += _name(name, where, pod_level)
            errors += amount_of(name, amount, where)
    errors += _within_limits(requests, limits, path)
    named = limits.keys() | requests.keys()
    if any(name.startswith(HUGE) for name in named) and not named & {"cpu", "memory"}:
        errors.append(forbidden_field(path, "HugePages require cpu or memory"))
    return errors + _claims(resources.get("claims") or [], claims, f"{path}.claims")


def amount_of(name: str, amount: Quantity, path: str) -> Errors:
    """Check the amount of a resource: not negative, whole where it is counted, whole pages where it is huge pages."""
    errors = quantity(amount, path)
    if errors:
        return errors
    if (is_extended(name) or name in _COUNTED) and remainder(parse(amount), 1):
        errors.append(invalid_value(path, str(amount), "must be an integer"))
    if name.startswith(HUGE):
        try:
            page = parse(name.removeprefix(HUGE))
        except QuantityError:
            page = Decimal(0)
        if page and remainder(parse(amount), page):
            errors.append(invalid_value(path, str(amount), f"{amount} is not positive integer multiple of {name}"))
    return errors


def _within_limits(requests: Object, limits: Object, path: str) -> Errors:
    errors: Errors = []
    for name, amount in requests.items():
        exact, limit = is_extended(name) or name.startswith(HUGE), limits.get(name)
        if limit is None:
            if exact:
                errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
            continue
        asked, most = parse(amount), parse(limit)
        if exact and asked != most:
            detail = f"must be equal to {name} limit of {limit}"
            errors.append(invalid_value(f"{path}.requests", str(amount), detail))
        elif asked > most:
            detail = f"must be less than or equal to {name} limit of {limit}"
            errors.append(invalid_value(f"{path}.requests", str(amount), detail))
    return errors


def _claims(used: list[Object], claims: Collection[str], path: str) -> Errors:
    """Check what a container uses of its pod's claims: a whole claim, or requests of it, but nothing twice."""
    errors: Errors = []
    seen: set[str] = set()
    for index, claim in enumerate(used):
        where, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(required(where))
            continue
        key = f"{name}/{request}" if request else name
        if request:
            errors += each(f"{where}.request", request, names.dns1123_label(request))
        whole = not request and any(k.startswith(f"{name}/") for k in seen)
        if name in seen or key in seen or whole:
            errors.append(duplicate(where, name if name in seen or whole else key))
        seen.add(key)
        if name not in claims:
            known = ": " + ", ".join(sorted(claims)) if claims else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{known}"
            errors.append(FieldError(where, "Not found", detail, name))
    return errors


def is_extended(name: str) -> bool:
    """True if a resource is somebody's own (a device), rather than one that Kubernetes knows."""
    return "/" in name and not name.partition("/")[0].endswith(_NATIVE_DOMAIN)


def is_exact(name: str) -> bool:
    """True if what is asked for of a resource is what one gets: no more may be promised than there is."""
    return is_extended(name) or name.startswith(HUGE)


def container_resource_name(name: str, path: str) -> Errors:
    """Check the name of something that containers can ask for."""
    return _name(name, path, pod_level=False)


def standard_name(name: str, path: str) -> Errors:
    """Check that a resource's name is a well-known or a fully qualified one."""
    errors = each(path, name, names.qualified_name(name))
    if (
        not errors
        and "/" not in name
        and name not in _KNOWN
        and not name.startswith((HUGE, "requests.", "limits.", "count/"))
    ):
        errors.append(invalid_value(path, name, "must be a standard resource type or fully qualified"))
    return errors


def _name(name: str, path: str, pod_level: bool) -> Errors:
    errors = standard_name(name, path)
    if pod_level:
        if not errors and name not in ("cpu", "memory") and not name.startswith(HUGE):
            errors.append(not_supported(path, name, ("cpu", "hugepages-", "memory")))
        return errors
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(HUGE):
            errors.append(invalid_value(path, name, "must be a standard resource for containers"))
    elif name.startswith("requests.") and is_extended(name):
        errors.append(invalid_value(path, name, "doesn't follow extended resource name standard"))
    return errors
