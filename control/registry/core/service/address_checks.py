"""Checks of the addresses and ranges of a Service; an update may keep stored ones in any form.

Upstream: validateService and ValidateServiceClusterIPsRelatedFields in pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Collection

from control.registry.checks import Errors, FieldErrors, one_of, unique
from control.registry.core.service.allocations import HEADLESS
from control.registry.field_values import field_value, values_in
from control.registry.ip_checks import cidr, ip, non_special_ip
from kube.errors import forbidden_field, invalid_value, required
from kube.ip_addresses import family
from kube.json_object import Object

_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_PATH = "spec.clusterIPs"
_READ = 8
"""Addresses and families that are checked: two are allowed, and of more there is an error among the first three."""


def validate_cluster_ips(spec: Object, old: Object | None) -> Errors:
    """Check cluster addresses and IP families, also before addresses are allocated; of long lists only the beginning."""
    if spec.get("type") == "ExternalName":
        return []
    errors: Errors = []
    ips, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    if spec.get("clusterIP"):
        if not ips:
            errors.append(required(_PATH))
        elif ips[0] != spec["clusterIP"]:
            errors.append(invalid_value(_PATH, ips, "first value must match `clusterIP`"))
    elif ips:
        errors.append(invalid_value(_PATH, ips, "must be empty when `clusterIP` is not specified"))
    seen: set[str] = set()
    for index, wanted in enumerate(families[:_READ]):
        errors += one_of(wanted, ("IPv4", "IPv6"), f"spec.ipFamilies[{index}]")
        errors += unique(f"spec.ipFamilies[{index}]", wanted, seen)
    if spec.get("ipFamilyPolicy") is not None:
        errors += one_of(spec["ipFamilyPolicy"], _POLICIES, "spec.ipFamilyPolicy")
    wrong = list(_addresses(ips, values_in(old, f"{_PATH}[*]")))
    errors += wrong
    if len(ips) > 2:
        errors.append(invalid_value(_PATH, ips, "may only hold up to 2 values"))
    return errors if wrong else errors + _families(ips, families)


def _addresses(ips: list[str], kept: Collection[str]) -> FieldErrors:
    for index, address in enumerate(ips[:_READ]):
        if index or address != HEADLESS:
            yield from ip(address, f"{_PATH}[{index}]", kept)
        elif len(ips) > 1:
            yield invalid_value(_PATH, ips, "'None' must be the first and only value")


def _families(ips: list[str], families: list[str]) -> Errors:
    """Check the families of valid addresses: one of each, and as ipFamilies says."""
    if ips[:1] == [HEADLESS]:
        return []
    found = [family(address) for address in ips[:_READ]]
    errors: Errors = []
    if len(found) > 1 and set(found) != {"IPv4", "IPv6"}:
        errors.append(invalid_value(_PATH, ips, "may specify no more than one IP for each IP family"))
    for index, (address, own, wanted) in enumerate(zip(ips, found, families, strict=False)):
        if wanted in ("IPv4", "IPv6") and own != wanted:
            detail = f"expected an {wanted} value as indicated by `ipFamilies[{index}]`"
            errors.append(invalid_value(f"{_PATH}[{index}]", address, detail))
    return errors


def validate_external_ips(obj: Object, old: Object | None) -> FieldErrors:
    """Check external addresses; a stored one may stay in its form, if it is no special one."""
    kept = values_in(old, "spec.externalIPs[*]")
    for index, address in enumerate((obj.get("spec") or {}).get("externalIPs") or ()):
        where = f"spec.externalIPs[{index}]"
        yield from ip(address, where, kept) or non_special_ip(address, where)


def validate_source_ranges(obj: Object, old: Object | None) -> FieldErrors:
    """Check the ranges that a load balancer accepts clients from; those of the annotation only if it is changed."""
    spec = obj.get("spec") or {}
    ranges, annotated = spec.get("loadBalancerSourceRanges") or [], _annotated(obj)
    # The field's path has a capital letter upstream.
    path = "spec.LoadBalancerSourceRanges" if ranges else f"metadata.annotations[{_SOURCE_RANGES}]"
    if (ranges or annotated is not None) and spec.get("type") != "LoadBalancer":
        yield forbidden_field(path, "may only be used when `type` is 'LoadBalancer'")
    if ranges:
        kept = {value.strip() for value in values_in(old, "spec.loadBalancerSourceRanges[*]")}
        for index, value in enumerate(ranges):
            yield from cidr(value.strip(), f"{path}[{index}]", kept)
    elif annotated and annotated.strip() and annotated != _annotated(old):
        yield from [error for value in annotated.split(",") for error in cidr(value.strip(), path)]


def _annotated(obj: Object | None) -> str | None:
    text: str | None = (field_value(obj, "metadata.annotations") or {}).get(_SOURCE_RANGES)
    return text
