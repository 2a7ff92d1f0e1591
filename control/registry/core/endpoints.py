"""Endpoints: the old, one-object form of a Service's addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from control.registry.checks import each, one_of, port
from control.registry.core.pod.container_ports import PROTOCOLS
from control.registry.field_values import field_values
from control.registry.ip_checks import ip, ip_warnings, non_special_ip
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube.errors import FieldError, required
from kube.json_object import Object
from kube.names import dns1123_label, dns1123_subdomain, qualified_name
from kube.urls import host_port

SHOWN = 3
_MANAGED_BY, _CONTROLLER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
_ADDRESSES = ("addresses[*].ip", "notReadyAddresses[*].ip")


def _text(subsets: list[Object] | None) -> str:
    if not subsets:
        return NONE
    # Each address has each port, of which there may be thousands: only those that are shown are written.
    number = sum(len(s.get("addresses") or ()) * max(1, len(s.get("ports") or ())) for s in subsets)
    return _joined(islice(chain.from_iterable(map(_pairs, subsets)), SHOWN), number)


def _pairs(subset: Object) -> Iterator[str]:
    for item in subset.get("ports") or (None,):
        for address in subset.get("addresses") or ():
            own = address.get("ip", "")
            yield own if item is None else host_port(own, item.get("port"))


def shortened(items: list[str]) -> str:
    """Join the first three and count the rest."""
    return _joined(items[:SHOWN], len(items))


def _joined(first: Iterable[str], number: int) -> str:
    text = ",".join(first)
    return f"{text} + {number - SHOWN} more..." if number > SHOWN else text


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

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return what is wrong; unchanged subsets were valid once, maybe by older rules."""
        return [] if obj.get("subsets") == old.get("subsets") else self.validate(obj)

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
                errors += _validate_port(item, named=len(ports) > 1, path=f"{path}.ports[{number}]")
        return errors

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Return warnings about addresses; the controller's own have the canonical form."""
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == _CONTROLLER:
            return []
        subsets = field_values(obj, "subsets[*]")
        return [text for path, subset in subsets for text in ip_warnings(subset, *_ADDRESSES, at=path)]


def _validate_port(item: Object, *, named: bool, path: str) -> list[FieldError]:
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
