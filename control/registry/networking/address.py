"""ServiceCIDRs and IPAddresses: the ranges that Services get addresses from, and who has which address."""

from __future__ import annotations

import ipaddress

from control.registry.cells import AGE, NAME, NONE, Column, Field, name_of
from control.registry.changes import validate_immutable
from control.registry.strategy import Object, Strategy
from kube.errors import FieldError, invalid_value, required


class ServiceCIDRStrategy(Strategy):
    columns = (NAME, Column("CIDRs", Field("spec.cidrs", show=lambda cidrs: ",".join(cidrs or ())), "The ranges."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        return _validate_ranges((obj.get("spec") or {}).get("cidrs") or [])

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = (((o.get("spec") or {}).get("cidrs") or []) for o in (old, obj))
        # A second family may be added to a range of one.
        if after == before or (len(before) == 1 and len(after) == 2 and after[0] == before[0]):
            return _validate_ranges(after)
        return [invalid_value("spec.cidrs", after, "field is immutable")]


def _validate_ranges(ranges: list[str]) -> list[FieldError]:
    if not ranges:
        return [required("spec.cidrs", "at least one CIDR required")]
    if len(ranges) > 2:
        return [invalid_value("spec", ranges, "may only hold up to 2 values")]
    errors, versions = [], set()
    for index, text in enumerate(ranges):
        try:
            if "/" not in text or "%" in text:  # "%" is followed by the name of a link, which may hold anything
                raise ValueError
            versions.add(ipaddress.ip_network(text).version)
        except ValueError:
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid_value(f"spec.cidrs[{index}]", text, detail))
    if len(ranges) == 2 and not errors and len(versions) != 2:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96"
        errors.append(invalid_value("spec", ranges, detail))
    return errors


def address_name(name: str, prefix: bool = False) -> list[str]:
    """An IP address in its one canonical form."""
    try:
        if "%" in name:
            raise ValueError
        canonical = str(ipaddress.ip_address(name))
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return [] if canonical == name else [f"must be in canonical form (e.g. {canonical})"]


def _parent(parent: Object | None) -> str:
    """Print a reference: `services/default/web`."""
    if not parent:
        return NONE
    group, namespace = parent.get("group"), parent.get("namespace")
    resource = parent.get("resource", "") + (f".{group}" if group else "")
    return "/".join([resource, *([namespace] if namespace else []), parent.get("name", "")])


class IPAddressStrategy(Strategy):
    columns = (NAME, Column("ParentRef", Field("spec.parentRef", show=_parent), "Who has the address."), AGE)
    has_generation = False

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return address_name(name, prefix)

    def validate(self, obj: Object) -> list[FieldError]:
        errors = [invalid_value("metadata.name", name_of(obj), e) for e in address_name(name_of(obj))]
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent is None:
            return [*errors, required("spec.parentRef")]
        return errors + [required(f"spec.parentRef.{key}") for key in ("resource", "name") if not parent.get(key)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_immutable(obj, old, "spec.parentRef")

    def fields(self, obj: Object) -> dict[str, str]:
        parent = (obj.get("spec") or {}).get("parentRef") or {}
        return {f"spec.parentRef.{k}": parent.get(k) or "" for k in ("group", "resource", "namespace", "name")}
