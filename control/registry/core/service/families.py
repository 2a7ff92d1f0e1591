"""IP families of a Service before its addresses are allocated: from what is requested, stored, and available in the cluster.

Upstream: initIPFamilyFields in pkg/registry/core/service/storage/alloc.go.
"""

from __future__ import annotations

from collections.abc import Collection

from control.registry.checks import Errors
from control.registry.core.service.address_checks import validate_cluster_ips
from control.registry.core.service.allocations import HEADLESS, family_of, refuse
from kube.errors import invalid_value
from kube.json_object import Object

_POLICY = "spec.ipFamilyPolicy"
_RELEASED = (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family"))


def choose_families(obj: Object, old: Object | None, available: Collection[str], default: str) -> None:
    """Fill in ipFamilyPolicy and ipFamilies; raises 422 for addresses and families that are invalid or not available."""
    spec, before = obj["spec"], (old or {}).get("spec") or {}
    if spec.get("type") == "ExternalName" or _stays_as_it_is(spec, before):
        return
    if old is None and spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    free = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or ("RequireDualStack" if free else "SingleStack")
    _refuse(obj, validate_cluster_ips(spec, old))
    errors = _release(spec, before) if before else []
    _refuse(obj, errors + _single(spec) + _infer(spec, available))
    families: list[str] = spec["ipFamilies"]
    if not free:
        _refuse(obj, _unavailable(spec, available))
    if not families:
        families.append(default)
    if spec["ipFamilyPolicy"] != "SingleStack" and len(families) == 1 and (free or len(available) == 2):
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")


def _refuse(obj: Object, problems: Errors) -> None:
    if problems:
        raise refuse(obj, *problems)


def _stays_as_it_is(spec: Object, before: Object) -> bool:
    """Return whether nothing is requested of a Service that prefers two families: it changes with the cluster never."""
    fields = ("type", "ipFamilyPolicy", "clusterIPs", "ipFamilies")
    same = all(spec.get(field) == before.get(field) for field in fields)
    return same and spec.get("ipFamilyPolicy") == "PreferDualStack" and bool(spec.get("ipFamilies"))


def _release(spec: Object, before: Object) -> Errors:
    """Remove the second address and family if the new policy is SingleStack; an update may not remove them otherwise."""
    single, errors = spec["ipFamilyPolicy"] == "SingleStack", Errors()
    for field, shown in _RELEASED:
        now, was = spec.get(field) or [], before.get(field) or []
        if single and now == was and len(now) > 1:
            spec[field] = now[:1]
        elif not single and now and len(now) < len(was):
            detail = f"must be 'SingleStack' to release the secondary {shown}"
            errors.append(invalid_value(_POLICY, spec["ipFamilyPolicy"], detail))
    return errors


def _single(spec: Object) -> Errors:
    """Check that a Service of one family has no more than one address and family."""
    if spec["ipFamilyPolicy"] != "SingleStack":
        return []
    detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    return [
        invalid_value(_POLICY, "SingleStack", detail.format(shown))
        for field, shown in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families"))
        if len(spec.get(field) or ()) == 2
    ]


def _infer(spec: Object, available: Collection[str]) -> Errors:
    """Add the families of requested addresses."""
    families, errors = list(spec.get("ipFamilies") or ()), Errors()
    ips = spec.get("clusterIPs") or []
    for index, address in enumerate(ips if ips[:1] != [HEADLESS] else ()):
        family = family_of(address)
        if index < len(families):
            continue
        if family in available:
            families.append(family)
        else:
            errors.append(
                invalid_value(f"spec.clusterIPs[{index}]", ips, f"{family} is not configured on this cluster")
            )
    spec["ipFamilies"] = families
    return errors


def _unavailable(spec: Object, available: Collection[str]) -> Errors:
    policy, errors = spec["ipFamilyPolicy"], Errors()
    if policy == "RequireDualStack" and len(available) < 2:
        errors.append(invalid_value(_POLICY, policy, "this cluster is not configured for dual-stack services"))
    for index, family in enumerate(spec["ipFamilies"]):
        if family not in available:
            errors.append(invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    return errors
