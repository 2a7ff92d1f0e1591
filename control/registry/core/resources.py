"""Checks of resource requirements: known or fully qualified names, no negative amounts, requests within limits."""

from __future__ import annotations

from control.registry.checks import Errors, quantity
from control.registry.strategy import Object
from kube import names
from kube.errors import invalid_value, not_supported, required
from kube.quantity import QuantityError, parse

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_NATIVE_DOMAIN = "kubernetes.io/"


def validate_requirements(resources: Object | None, path: str, pod_level: bool = False) -> Errors:
    """Check limits against requests of a container, or of a pod as a whole."""
    if not resources:
        return []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: Errors = []
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{side}[{name}]"
            found = [*_name(name, f"{path}.{side}", pod_level), *quantity(amount, where)]
            if _is_extended(name) and not found and parse(amount) % 1:
                found.append(invalid_value(where, str(amount), "must be an integer"))
            errors += found
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if _is_extended(name) or name.startswith("hugepages-"):
                errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
            continue
        try:
            asked, most = parse(amount), parse(limit)
        except QuantityError:
            continue
        if _is_extended(name) or name.startswith("hugepages-"):
            if asked != most:
                detail = f"must be equal to {name} limit of {limit}"
                errors.append(invalid_value(f"{path}.requests", str(amount), detail))
        elif asked > most:
            detail = f"must be less than or equal to {name} limit of {limit}"
            errors.append(invalid_value(f"{path}.requests", str(amount), detail))
    claimed: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.get("claims") or ()):
        pair = (claim.get("name") or "", claim.get("request") or "")
        if pair in claimed:
            errors.append(invalid_value(f"{path}.claims[{index}]", pair[0], "must be unique"))
        claimed.add(pair)
    return errors


def _is_extended(name: str) -> bool:
    return "/" in name and not name.startswith(_NATIVE_DOMAIN)


def _name(name: str, path: str, pod_level: bool) -> Errors:
    errors = [invalid_value(path, name, problem) for problem in names.qualified_name(name)]
    if errors:
        return errors
    if pod_level:
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            errors.append(not_supported(path, name, ("cpu", "memory", "hugepages-")))
        return errors
    if "/" not in name:
        if name not in _STANDARD and not name.startswith("hugepages-"):
            errors.append(invalid_value(path, name, "must be a standard resource type or fully qualified"))
            errors.append(invalid_value(path, name, "must be a standard resource for containers"))
    elif name.startswith(("requests.", "limits.")):
        errors.append(invalid_value(path, name, "must not start with a quota prefix"))
    return errors
