"""Endpoints: the old, one-object form of a Service's addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from control.registry.checks import FieldErrors, port, required_name
from control.registry.core.pod.container_ports import PROTOCOLS
from control.registry.defaults import Defaults
from control.registry.field_values import field_values
from control.registry.ip_checks import ip, ip_warnings, non_special_ip
from control.registry.rows import Rows
from control.registry.rules import form, number, optional, require_enum, text
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


_ADDRESS = Rows(
    ("ip", text(ip), text(non_special_ip)),
    ("hostname", optional(form(dns1123_label))),
    ("nodeName?", form(dns1123_subdomain)),
)
_PORT = Rows(
    ("port", number(port)),
    ("protocol", require_enum(*PROTOCOLS)),
    ("appProtocol", optional(form(qualified_name))),
)


def _any_address(subset: Object, path: str) -> FieldErrors:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")


def _ports(ports: list[Object] | None, path: str) -> FieldErrors:
    """Check ports, which have names if there are several."""
    for index, item in enumerate(ports or ()):
        where, name = f"{path}[{index}]", item.get("name")
        if name or len(ports or ()) > 1:
            yield from required_name(f"{where}.name", name, dns1123_label)
        yield from _PORT(item, where)


class EndpointsStrategy(Strategy):
    columns = (NAME, Column("Endpoints", Field("subsets", show=_text), "Addresses and ports that are ready."), AGE)
    allow_create_on_update = True
    has_generation = False
    field_rules = Rows(
        ("subsets[*]", _any_address),
        ("subsets[*].{addresses,notReadyAddresses}[*]", _ADDRESS),
        ("subsets[*].ports", _ports),
    )
    api_warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    field_defaults = Defaults(("subsets[*].ports[*].protocol", "TCP"))

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return what is wrong; unchanged subsets were valid once, maybe by older rules."""
        return [] if obj.get("subsets") == old.get("subsets") else self.validate(obj)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Return warnings about addresses; the controller's own have the canonical form."""
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == _CONTROLLER:
            return []
        subsets = field_values(obj, "subsets[*]")
        return [text for path, subset in subsets for text in ip_warnings(subset, *_ADDRESSES, at=path)]
