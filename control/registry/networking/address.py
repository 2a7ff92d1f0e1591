"""ServiceCIDRs and IPAddresses: the ranges that Services get addresses from, and who has which address."""

from __future__ import annotations

from control.registry.changes import IMMUTABLE, validate_immutable
from control.registry.ip_checks import strict_cidr, strict_ip
from control.registry.rows import Rows
from control.registry.rules import form, optional, present, require_name
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube.errors import FieldError, invalid_value, required
from kube.ip_addresses import lenient_cidr
from kube.json_object import Object
from kube.names import dns1123_subdomain, path_segment


class ServiceCIDRStrategy(Strategy):
    columns = (NAME, Column("CIDRs", Field("spec.cidrs", show=lambda cidrs: ",".join(cidrs or ())), "The ranges."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        return _validate_ranges((obj.get("spec") or {}).get("cidrs") or [])

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = (((o.get("spec") or {}).get("cidrs") or []) for o in (old, obj))
        if len(before) != len(after) and (len(before), len(after)) != (1, 2):
            return [invalid_value("spec.cidrs", after, IMMUTABLE)]
        pairs = enumerate(zip(before, after, strict=False))
        errors = [invalid_value(f"spec.cidrs[{index}]", now, IMMUTABLE) for index, (was, now) in pairs if now != was]
        # A second family may be added to a range of one.
        return errors + _validate_ranges(after) if len(after) > len(before) else errors


def _validate_ranges(ranges: list[str]) -> list[FieldError]:
    if not ranges:
        return [required("spec.cidrs", "at least one CIDR required")]
    if len(ranges) > 2:
        return [invalid_value("spec.cidrs", {"CIDRs": ranges}, "may only hold up to 2 values")]
    errors = [error for index, text in enumerate(ranges) for error in strict_cidr(text, f"spec.cidrs[{index}]")]
    if len(ranges) == 2 and _family(ranges[0]) == _family(ranges[1]) != 0:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.append(invalid_value("spec.cidrs", ranges, detail))
    return errors


def _family(text: str) -> int:
    """Return the version of a range's address, 0 for what is no range."""
    try:
        return lenient_cidr(text).address.version
    except ValueError:
        return 0


def address_name(name: str, *, prefix: bool = False) -> list[str]:
    """An IP address in its one canonical form."""
    return [error.detail for error in strict_ip(name, "")]


def _parent(parent: Object | None) -> str:
    """Print a reference: `services/default/web`."""
    if not parent:
        return NONE
    group, namespace = parent.get("group"), parent.get("namespace")
    resource = parent.get("resource", "") + (f".{group}" if group else "")
    return "/".join([resource, *([namespace] if namespace else []), parent.get("name", "")])


class IPAddressStrategy(Strategy):
    columns = (NAME, Column("ParentRef", Field("spec.parentRef", show=_parent), "Who has the address."), AGE)
    field_rules = Rows(
        ("metadata.name", form(address_name)),
        ("spec.parentRef", present()),
        ("spec.parentRef?.group", optional(form(dns1123_subdomain))),
        ("spec.parentRef?.resource", require_name(path_segment)),
        ("spec.parentRef?.name", require_name(path_segment)),
        ("spec.parentRef?.namespace", optional(form(path_segment))),
    )
    has_generation = False
    name_rule = staticmethod(address_name)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_immutable(obj, old, "spec.parentRef")

    def fields(self, obj: Object) -> dict[str, str]:
        parent = (obj.get("spec") or {}).get("parentRef") or {}
        return {f"spec.parentRef.{k}": parent.get(k) or "" for k in ("group", "resource", "namespace", "name")}
