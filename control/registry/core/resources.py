"""Checks of resource requirements: known or fully qualified names, no negative amounts, requests within limits."""

from __future__ import annotations

from decimal import Decimal

from control.registry.checks import Errors, FieldErrors, each, quantity
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object
from kube.quantity import Quantity, QuantityError, canonical, parse, remainder

STANDARD = ("cpu", "memory", "ephemeral-storage")
_NATIVE_DOMAIN = "kubernetes.io"
HUGE = "hugepages-"
COUNTED = (
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
_KNOWN = (*STANDARD, *COUNTED, "storage")


def validate_requirements(resources: Object | None, path: str, *, pod_level: bool = False) -> FieldErrors:
    """Check limits against requests of a container, or of a pod as a whole."""
    if not resources:
        return
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{side}[{name}]"
            yield from _name(name, where, pod_level=pod_level)
            yield from amount_of(name, amount, where)
    yield from _within_limits(requests, limits, path)
    named = limits.keys() | requests.keys()
    if any(name.startswith(HUGE) for name in named) and not named & {"cpu", "memory"}:
        yield forbidden_field(path, "HugePages require cpu or memory")


def amount_of(name: str, amount: Quantity, path: str) -> Errors:
    """Check the amount of a resource: not negative, whole where it is counted, whole pages where it is huge pages."""
    errors = quantity(amount, path)
    if errors:
        return errors
    if (is_extended(name) or name in COUNTED) and remainder(parse(amount), 1):
        errors.append(invalid_value(path, canonical(amount), "must be an integer"))
    if name.startswith(HUGE):
        try:
            page = parse(name.removeprefix(HUGE))
        except QuantityError:
            page = Decimal(0)
        if page and remainder(parse(amount), page):
            shown = canonical(amount)
            errors.append(invalid_value(path, shown, f"{shown} is not positive integer multiple of {name}"))
    return errors


def _within_limits(requests: Object, limits: Object, path: str) -> FieldErrors:
    for name, amount in requests.items():
        exact, limit = is_extended(name) or name.startswith(HUGE), limits.get(name)
        if limit is None:
            if exact:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
            continue
        asked, most = parse(amount), parse(limit)
        if exact and asked != most:
            detail = f"must be equal to {name} limit of {canonical(limit)}"
            yield invalid_value(f"{path}.requests", canonical(amount), detail)
        elif asked > most:
            detail = f"must be less than or equal to {name} limit of {canonical(limit)}"
            yield invalid_value(f"{path}.requests", canonical(amount), detail)


def is_extended(name: str) -> bool:
    """True for an extended resource (such as a device), False for those of Kubernetes."""
    return "/" in name and not name.partition("/")[0].endswith(_NATIVE_DOMAIN)


def is_exact(name: str) -> bool:
    """True if what is requested of a resource is what one gets: no more may be promised than there is."""
    return is_extended(name) or name.startswith(HUGE)


def container_resource_name(name: str, path: str) -> Errors:
    """Check the name of something that containers can request."""
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


def _name(name: str, path: str, *, pod_level: bool) -> Errors:
    errors = standard_name(name, path)
    if pod_level:
        if not errors and name not in ("cpu", "memory") and not name.startswith(HUGE):
            errors.append(not_supported(path, name, ("cpu", "hugepages-", "memory")))
        return errors
    if "/" not in name:
        if name not in STANDARD and not name.startswith(HUGE):
            errors.append(invalid_value(path, name, "must be a standard resource for containers"))
    elif name.startswith("requests.") and is_extended(name):
        errors.append(invalid_value(path, name, "doesn't follow extended resource name standard"))
    return errors
