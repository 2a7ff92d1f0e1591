"""EndpointSlices: up to 1000 endpoints of one address family, of which a Service may have many."""

from __future__ import annotations

from control.registry.changes import validate_immutable
from control.registry.checks import Errors, FieldErrors, one_of, port
from control.registry.core.endpoints import shortened
from control.registry.core.pod.container_ports import PROTOCOLS
from control.registry.defaults import Defaults, absent
from control.registry.ip_checks import ip, ip_warnings, non_special_ip, strict_ip
from control.registry.rows import Rows
from control.registry.rules import Rule, form, max_items, optional, require, require_enum, unique_item
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, UNSET, Column, Field
from control.storage import lazy_json
from kube import names
from kube.errors import FieldError, invalid_value, required, too_many
from kube.json_object import Object

_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
MAX_ENDPOINTS, MAX_PORTS, MAX_ADDRESSES, MAX_HINTS = 1000, 20000, 100, 8


def _addresses_of(kind: str) -> Rule:
    """Return the check of a slice's addresses: an IPv6 one only has the canonical form, as upstream."""

    def rule(addresses: list[str] | None, path: str) -> FieldErrors:
        for index, address in enumerate(addresses or ()):
            where = f"{path}[{index}]"
            if wrong := (ip if kind == "IPv4" else strict_ip)(address, where):
                yield from wrong
                continue
            if (":" in address) != (kind == "IPv6"):
                yield invalid_value(path, address, f"must be an {kind} address")
            yield from non_special_ip(address, where)

    return rule


def _validate_domain(name: str, path: str) -> list[FieldError]:
    """Check a fully qualified domain name."""
    if not name:
        return [required(path)]
    plain = name.removesuffix(".")
    if problems := names.dns1123_subdomain(plain):
        return [invalid_value(path, plain, ",".join(problems))]
    parts = plain.split(".")
    if len(parts) < 2:
        return [invalid_value(path, plain, "should be a domain with at least two segments separated by dots")]
    wrong = ((part, names.dns1123_label(part)) for part in parts)
    return next(([invalid_value(path, part, ",".join(found))] for part, found in wrong if found), [])


def _ports(ports: list[Object] | None) -> str:
    shown = (str(p["port"]) if p.get("port") is not None else p.get("name") or "*" for p in ports or ())
    return shortened(list(shown)) or UNSET


def _addresses(endpoints: list[Object] | None) -> str:
    return shortened([a for e in endpoints or () for a in e.get("addresses") or ()]) or UNSET


_ADDRESSES = Rows(
    ("addresses", require("must contain at least 1 address"), max_items(MAX_ADDRESSES)),
)
_REST = Rows(
    ("hostname", optional(form(names.dns1123_label))),
    ("nodeName", optional(form(names.dns1123_subdomain))),
    (f"hints.forZones[*{MAX_HINTS}].name", unique_item, form(names.label_value)),
    (f"hints.forNodes[*{MAX_HINTS}].name", unique_item, form(names.dns1123_subdomain)),
)


def _endpoints(path: str, check: Rule) -> Rows:
    return Rows((f"endpoints[*{MAX_ENDPOINTS}]", _ADDRESSES, Rows((path, check)), _REST))


_ENDPOINTS = {
    "FQDN": _endpoints("addresses[*]", _validate_domain),
    "IPv4": _endpoints("addresses", _addresses_of("IPv4")),
    "IPv6": _endpoints("addresses", _addresses_of("IPv6")),
}
_ANY_ENDPOINTS = Rows((f"endpoints[*{MAX_ENDPOINTS}]", _ADDRESSES, _REST))


def _validate_endpoints(obj: Object) -> Errors:
    return _ENDPOINTS.get(obj.get("addressType") or "", _ANY_ENDPOINTS).errors(obj)


_PORTS = Rows(
    ("ports[*].name", optional(form(names.dns1123_label)), unique_item),
    ("ports[*].protocol", require_enum(*PROTOCOLS)),
    ("ports[*].port?", port),
    ("ports[*].appProtocol?", form(names.qualified_name)),
)


class EndpointSliceStrategy(Strategy):
    index = staticmethod(lazy_json.label_reader("kubernetes.io/service-name"))
    columns = (
        NAME,
        Column("AddressType", Field("addressType"), "Kind of the addresses."),
        Column("Ports", Field("ports", show=_ports), "Ports of all endpoints."),
        Column("Endpoints", Field("endpoints", show=_addresses), "Addresses of the endpoints."),
        AGE,
    )
    field_defaults = Defaults(("ports[*].name", absent("")), ("ports[*].protocol", absent("TCP")))

    def validate(self, obj: Object) -> list[FieldError]:
        return self._validate(obj) + _validate_endpoints(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return what is wrong; unchanged endpoints were valid once, maybe by older rules."""
        same = obj.get("endpoints") == old.get("endpoints")
        errors = self._validate(obj) + ([] if same else _validate_endpoints(obj))
        return errors + validate_immutable(obj, old, "addressType")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Return warnings about addresses; those that controllers write have the canonical form."""
        fqdn = old is None and obj.get("addressType") == "FQDN"
        found = ["spec.addressType: FQDN endpoints are deprecated"] if fqdn else []
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) not in _CONTROLLERS:
            found += ip_warnings(obj, "endpoints[*].addresses[*]")
        return found

    def _validate(self, obj: Object) -> list[FieldError]:
        errors, ports = one_of(obj.get("addressType"), ("FQDN", "IPv4", "IPv6"), "addressType"), obj.get("ports") or []
        if len(ports) > MAX_PORTS:
            return [*errors, too_many("ports", len(ports), MAX_PORTS)]
        return errors + _PORTS.errors(obj)
