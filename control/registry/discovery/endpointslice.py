"""EndpointSlices: up to 1000 endpoints of one address family, of which a Service may have many."""

from __future__ import annotations

from control.registry.cells import AGE, NAME, UNSET, Column, Field
from control.registry.checks import each, ip, non_special_ip, one_of, port, unique
from control.registry.core.container_ports import PROTOCOLS
from control.registry.core.endpoints import shortened
from control.registry.strategy import Object, Strategy
from control.storage import partial
from kube import names
from kube.errors import FieldError, invalid_value, required, too_many

MAX_ENDPOINTS, MAX_PORTS, MAX_ADDRESSES, MAX_HINTS = 1000, 20000, 100, 8


def _validate_endpoint(endpoint: Object, kind: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    addresses = endpoint.get("addresses") or []
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > MAX_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        where = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            errors += each(where, address, names.dns1123_subdomain(address))
            continue
        if kind in ("IPv4", "IPv6"):
            if ip(address, where) or (":" in address) != (kind == "IPv6"):
                errors.append(invalid_value(where, address, f"must be a valid {kind} address"))
            errors += non_special_ip(address, where)
    if endpoint.get("hostname"):
        errors += each(f"{path}.hostname", endpoint["hostname"], names.dns1123_label(endpoint["hostname"]))
    if endpoint.get("nodeName"):
        errors += each(f"{path}.nodeName", endpoint["nodeName"], names.dns1123_subdomain(endpoint["nodeName"]))
    return errors + _hints((endpoint.get("hints") or {}), f"{path}.hints")


def _hints(hints: Object, path: str) -> list[FieldError]:
    """Check whose traffic an endpoint is meant for: zones and nodes, each once."""
    errors: list[FieldError] = []
    for key, most in (("forZones", MAX_HINTS), ("forNodes", MAX_HINTS)):
        found = hints.get(key) or []
        if len(found) > most:
            errors.append(too_many(f"{path}.{key}", len(found), most))
            continue
        seen: set[str] = set()
        for index, item in enumerate(found):
            where, name = f"{path}.{key}[{index}].name", item.get("name") or ""
            errors += unique(where, name, seen)
            errors += each(where, name, names.label_value(name) if key == "forZones" else names.dns1123_subdomain(name))
    return errors


def _ports(ports: list[Object] | None) -> str:
    shown = (str(p["port"]) if p.get("port") is not None else p.get("name") or "*" for p in ports or ())
    return shortened(list(shown)) or UNSET


def _addresses(endpoints: list[Object] | None) -> str:
    return shortened([a for e in endpoints or () for a in e.get("addresses") or ()]) or UNSET


class EndpointSliceStrategy(Strategy):
    index = staticmethod(partial.label_reader("kubernetes.io/service-name"))
    columns = (
        NAME,
        Column("AddressType", Field("addressType"), "Kind of the addresses."),
        Column("Ports", Field("ports", show=_ports), "Ports of all endpoints."),
        Column("Endpoints", Field("endpoints", show=_addresses), "Addresses of the endpoints."),
        AGE,
    )
    immutable = ("addressType",)

    def default(self, obj: Object) -> None:
        for item in obj.get("ports") or ():
            item.setdefault("name", "")
            item.setdefault("protocol", "TCP")

    def validate(self, obj: Object) -> list[FieldError]:
        kind = obj.get("addressType") or ""
        errors = one_of(kind, ("FQDN", "IPv4", "IPv6"), "addressType")
        endpoints, ports = obj.get("endpoints") or [], obj.get("ports") or []
        if len(endpoints) > MAX_ENDPOINTS:
            return [*errors, too_many("endpoints", len(endpoints), MAX_ENDPOINTS)]
        for index, endpoint in enumerate(endpoints):
            errors += _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
        if len(ports) > MAX_PORTS:
            return [*errors, too_many("ports", len(ports), MAX_PORTS)]
        seen: set[str] = set()
        for index, item in enumerate(ports):
            name = item.get("name") or ""
            if name:
                errors += each(f"ports[{index}].name", name, names.dns1123_label(name))
            errors += unique(f"ports[{index}].name", name, seen)
            errors += one_of(item.get("protocol"), PROTOCOLS, f"ports[{index}].protocol")
            if item.get("port") is not None:
                errors += port(item["port"], f"ports[{index}].port")
        return errors
