"""Endpoints: the old, one-object form of a Service's addresses."""

from __future__ import annotations

from control.registry.cells import AGE, NAME, NONE, Column, Field
from control.registry.checks import each, ip, non_special_ip, one_of, port
from control.registry.core.container_ports import PROTOCOLS
from control.registry.strategy import Object, Strategy
from kube.errors import FieldError, required
from kube.names import dns1123_label, dns1123_subdomain, qualified_name

SHOWN = 3


def _text(subsets: list[Object] | None) -> str:
    if not subsets:
        return NONE
    found = []
    for subset in subsets:
        addresses = [a.get("ip", "") for a in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            found += addresses
        for item in ports or ():
            found += [f"[{a}]:{item.get('port')}" if ":" in a else f"{a}:{item.get('port')}" for a in addresses]
    return shortened(found)


def shortened(items: list[str]) -> str:
    """Join the first three and count the rest."""
    text = ",".join(items[:SHOWN])
    return f"{text} + {len(items) - SHOWN} more..." if len(items) > SHOWN else text


class EndpointsStrategy(Strategy):
    columns = (NAME, Column("Endpoints", Field("subsets", show=_text), "Addresses and ports that are ready."), AGE)
    allow_create_on_update = True
    has_generation = False
    api_warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for item in subset.get("ports") or ():
                if not item.get("protocol"):
                    item["protocol"] = "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            path = f"subsets[{index}]"
            if not subset.get("addresses") and not subset.get("notReadyAddresses"):
                errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
            for key in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(key) or ()):
                    where = f"{path}.{key}[{number}]"
                    errors += ip(address.get("ip") or "", f"{where}.ip")
                    errors += non_special_ip(address.get("ip") or "", f"{where}.ip")
                    if address.get("hostname"):
                        errors += each(f"{where}.hostname", address["hostname"], dns1123_label(address["hostname"]))
                    if address.get("nodeName") is not None:
                        errors += each(f"{where}.nodeName", address["nodeName"], dns1123_subdomain(address["nodeName"]))
            ports = subset.get("ports") or []
            for number, item in enumerate(ports):
                errors += _validate_port(item, len(ports) > 1, f"{path}.ports[{number}]")
        return errors


def _validate_port(item: Object, named: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if item.get("name"):
        errors += each(f"{path}.name", item["name"], dns1123_label(item["name"]))
    elif named:
        errors.append(required(f"{path}.name"))
    errors += port(item.get("port", 0), f"{path}.port")
    errors += one_of(item.get("protocol"), PROTOCOLS, f"{path}.protocol")
    if item.get("appProtocol"):
        errors += each(f"{path}.appProtocol", item["appProtocol"], qualified_name(item["appProtocol"]))
    return errors
