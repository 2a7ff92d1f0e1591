"""Endpoints and ports of a Service as DNS sees them, read one at a time: who needs twenty of ten thousand reads twenty."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from kube.api import core_v1, discovery_v1
from netproxy.dns import wire
from netproxy.dns.kept import Bounded

T = TypeVar("T", bound=Hashable)
FAMILIES = {wire.A: ("IPv4",), wire.AAAA: ("IPv6",), wire.ANY: ("IPv4", "IPv6")}
"""The families of the addresses in an answer, by the type that is asked for."""
BOTH = FAMILIES[wire.ANY]
PORT_BYTES = 300


class Host(NamedTuple):
    """An address of a ready endpoint."""

    hostname: str
    ip: str


def hosts(slices: Iterable[discovery_v1.EndpointSlice], families: Sequence[str] = BOTH) -> Iterator[Host]:
    """Go through the addresses of ready endpoints."""
    for slice_ in slices:
        if slice_.address_type not in families:
            continue
        for endpoint in slice_.endpoints:
            if endpoint.conditions is not None and endpoint.conditions.ready is False:
                continue
            for ip in endpoint.addresses:
                yield Host((endpoint.hostname or dashed(ip)).lower(), ip)


def headless(service: core_v1.Service) -> bool:
    """Tell whether a Service has no address of its own, so that its names stand for its endpoints."""
    return service.spec.cluster_ip in (None, "", "None")


def dashed(ip: str) -> str:
    """Return the host label of an endpoint without a hostname."""
    return ip.replace(".", "-").replace(":", "-")


def unique(items: Iterable[T]) -> Iterator[T]:
    """Go through items without those that came before."""
    seen = set()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item


_WithPorts = core_v1.Service | discovery_v1.EndpointSlice
_Table = dict[tuple[str | None, str | None], list[int]]


class Ports:
    """Finds ports by the labels of SRV names ("_http", "_tcp"); the tables of the latest objects are kept.

    A made-up name costs one look-up, however many ports there are. The slices of a Service mostly share a table.
    """

    def __init__(self) -> None:
        self._tables: Bounded[int, tuple[_WithPorts, _Table]] = Bounded(1000, 4 << 20)
        self._latest: tuple[_WithPorts, _Table] | None = None

    def numbers(self, of: _WithPorts, port: str | None, protocol: str | None) -> Sequence[int]:
        """Return the numbers of an object's ports with these labels; None stands for every one."""
        found = self._tables.get(id(of))
        if found is None or found[0] is not of:
            shared = self._latest is not None and _ports(self._latest[0]) == _ports(of)
            found = of, self._latest[1] if self._latest is not None and shared else _table(_ports(of))
            self._tables.put(id(of), found, 0 if shared else PORT_BYTES * len(_ports(of)))
        self._latest = found
        return found[1].get((port, protocol), ())


def _ports(of: _WithPorts) -> Sequence[core_v1.ServicePort | discovery_v1.EndpointPort]:
    return of.spec.ports if isinstance(of, core_v1.Service) else of.ports


def _table(ports: Iterable[core_v1.ServicePort | discovery_v1.EndpointPort]) -> _Table:
    table: _Table = {}
    for port in ports:
        if port.port:
            protocol = f"_{(port.protocol or 'TCP').lower()}"
            keys: list[tuple[str | None, str | None]] = [(None, None), (None, protocol)]
            if port.name:  # one without a name has no SRV record of its own
                keys.append((f"_{port.name}", protocol))
            for key in keys:
                table.setdefault(key, []).append(port.port)
    return table
