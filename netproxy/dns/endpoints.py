"""Iterators over endpoints and ports of a Service: an answer with twenty of ten thousand endpoints reads only twenty."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from kube.api import core_v1, discovery_v1
from netproxy.dns import wire

T = TypeVar("T", bound=Hashable)
FAMILIES = {wire.A: ("IPv4",), wire.AAAA: ("IPv6",), wire.ANY: ("IPv4", "IPv6")}
"""Address families of an answer, by the queried type."""
BOTH = FAMILIES[wire.ANY]
MAX_ADDRESSES = 4
"""Addresses of an endpoint that have names. Controllers give each one, and the API lets clients use the first alone; a slice
may have 100 000."""
MAX_STEPS = 10_000
"""Endpoints and ports that an answer is looked for in: no answer of 64 KB has a quarter as many records."""


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
        for ip in endpoint.addresses[:MAX_ADDRESSES]:
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


class Limited(Iterable[T]):
    """The first `MAX_STEPS` items; after iteration, `cut` is True if there are more.

    Items that repeat fill no answer, and a Service may have any number of them.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._items, self.cut = items, False

    def __iter__(self) -> Iterator[T]:
        items = iter(self._items)
        yield from islice(items, MAX_STEPS)
        self.cut = next(items, None) is not None


Labels = tuple[str | None, str | None]
"""Of a port's name and protocol in an SRV name ("_http", "_tcp"); None stands for any."""


def port_labels(port: core_v1.ServicePort | discovery_v1.EndpointPort) -> list[Labels]:
    """Return all labels that lead to a port; one without a name has no SRV record of its own."""
    protocol = f"_{(port.protocol or 'TCP').lower()}"
    found: list[Labels] = [(None, None), (None, protocol)]
    return [*found, (f"_{port.name}", protocol)] if port.name else found
