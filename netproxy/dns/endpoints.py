"""Iterators over endpoints and ports of a Service: who needs twenty of ten thousand reads twenty."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from kube.api import core_v1, discovery_v1
from netproxy.dns import wire

T = TypeVar("T", bound=Hashable)
FAMILIES = {wire.A: ("IPv4",), wire.AAAA: ("IPv6",), wire.ANY: ("IPv4", "IPv6")}
"""The families of the addresses in an answer, by the type that is asked for."""
BOTH = FAMILIES[wire.ANY]


class Host(NamedTuple):
    """An address of a ready endpoint."""

    hostname: str
    ip: str


def hosts(slices: Iterable[discovery_v1.EndpointSlice], families: Sequence[str] = BOTH) -> Iterator[Host]:
    """Iterate over the addresses of ready endpoints."""
    for slice_ in slices:
        if slice_.address_type in families:
            yield from hosts_of(slice_.endpoints)


def hosts_of(endpoints: Iterable[discovery_v1.Endpoint]) -> Iterator[Host]:
    """Iterate over the addresses of those endpoints that are ready."""
    for endpoint in endpoints:
        if endpoint.conditions is not None and endpoint.conditions.ready is False:
            continue
        for ip in endpoint.addresses:
            yield Host((endpoint.hostname or dashed(ip)).lower(), ip)


def headless(service: core_v1.Service) -> bool:
    """Return whether a Service has no address of its own, so that its names stand for its endpoints."""
    return service.spec.cluster_ip in (None, "", "None")


def dashed(ip: str) -> str:
    """Return the host label of an endpoint without a hostname."""
    return ip.replace(".", "-").replace(":", "-")


def unique(items: Iterable[T]) -> Iterator[T]:
    """Iterate over items without those that came before."""
    seen = set()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item


Labels = tuple[str | None, str | None]
"""Of a port's name and protocol in an SRV name ("_http", "_tcp"); None stands for any."""


def port_labels(port: core_v1.ServicePort | discovery_v1.EndpointPort) -> list[Labels]:
    """Return all labels that lead to a port; one without a name has no SRV record of its own."""
    protocol = f"_{(port.protocol or 'TCP').lower()}"
    found: list[Labels] = [(None, None), (None, protocol)]
    return [*found, (f"_{port.name}", protocol)] if port.name else found
