"""Index of ports by Service and the labels of SRV names, updated incrementally.

Pods that give different numbers to a port's name get a slice each, so a Service may have thousands. Only slices with a ready
endpoint are indexed, because only those have records. A port needs about 100 bytes; Services of few ports are not indexed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeGuard

from kube.api import core_v1, discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import Host, Labels, hosts, hosts_of, port_labels
from netproxy.model import owner_of

Numbers = int | tuple[int, ...]
"""The number of a port with a name, or all different numbers of ports of any name."""
MAX_PORTS = 2000
"""Maximum number of ports of a slice that have SRV records; a slice may have 20 000."""
FEW = 16
"""Number of ports up to which a Service is not indexed."""


class ServicePorts:
    """Index of the ports of Services, updated by an informer."""

    def __init__(self, services: Informer[core_v1.Service]) -> None:
        self._tables: dict[str, dict[str, core_v1.ServicePort]] = {}
        """Of Services of many ports: these by name, and one of each protocol by its label, which is no name ("_tcp")."""
        services.subscribe(self._changed)

    def port_numbers(
        self, key: str, ports: Sequence[core_v1.ServicePort], port: str | None, protocol: str | None
    ) -> Iterator[int]:
        """Iterate over the ports of a Service with these labels (None: any); for a protocol alone one may represent all."""
        table = self._tables.get(key)
        if table is not None and protocol is not None:
            found = table.get(protocol if port is None else port.removeprefix("_"))
            ports = () if found is None else (found,)
        return (each.port for each in ports if each.port and (port, protocol) in port_labels(each))

    def _changed(self, change: Change[core_v1.Service]) -> None:
        ports = change.new.spec.ports
        if change.type == "DELETED" or len(ports) <= FEW:
            self._tables.pop(change.key, None)
            return
        table = self._tables[change.key] = {port.name: port for port in ports if port.name and port.port}
        table |= {f"_{(port.protocol or 'TCP').lower()}": port for port in ports if port.port}


class PortIndex:
    """Index of the ports of slices, updated by an informer. A change of a slice indexes all of its ports again."""

    def __init__(self, slices: Informer[discovery_v1.EndpointSlice]) -> None:
        self._slices = slices
        self._tables: dict[str, dict[Labels, dict[str, Numbers]]] = {}
        """Numbers by Service, labels and slice."""
        self._ready: dict[str, array[int]] = {}
        """The positions of ready endpoints in those of these slices that have others: there may be far more of these."""
        slices.subscribe(self._changed)

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Iterate over the ports with these labels (None: any) of the ready endpoints of a Service."""
        for slice_key, found in self._tables.get(key, {}).get((port, protocol), {}).items():
            slice_ = self._slices.get(slice_key)
            numbers = found if isinstance(found, tuple) else (found,)
            labels: set[str] = set()
            for host in hosts_of(self._ready_endpoints(slice_key, slice_)) if slice_ is not None else ():
                # Its further addresses have the same records.
                for number in numbers[:1] if host.hostname in labels else numbers:
                    yield host, number
                labels.add(host.hostname)

    def _ready_endpoints(self, key: str, slice_: discovery_v1.EndpointSlice) -> Iterable[discovery_v1.Endpoint]:
        positions, endpoints = self._ready.get(key), slice_.endpoints
        return endpoints if positions is None else [endpoints[each] for each in positions if each < len(endpoints)]

    def _changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        old, new = change.old, change.new if change.type != "DELETED" else None
        before, after = owner_of(old) if _leads(old) else "", owner_of(new) if _leads(new) else ""
        self._ready.pop(change.key, None)
        if new and after:
            known = map(attrgetter("conditions"), new.endpoints)
            ready = [count for count, each in enumerate(known) if each is None or each.ready is not False]
            if len(ready) < len(new.endpoints):
                self._ready[change.key] = array("I", ready)
        if before == after and (not before or (old and new and old.ports == new.ports)):
            return
        gone = numbers_by_labels(old.ports) if old and before else {}
        come = numbers_by_labels(new.ports) if new and after else {}
        slice_key = change.key
        for labels in gone if before != after else gone.keys() - come.keys():
            table = self._tables[before]
            del table[labels][slice_key]
            if not table[labels]:
                del table[labels]
            if not table:
                del self._tables[before]
        for labels, numbers in come.items():
            self._tables.setdefault(after, {}).setdefault(labels, {})[slice_key] = numbers


def _leads(slice_: discovery_v1.EndpointSlice | None) -> TypeGuard[discovery_v1.EndpointSlice]:
    """Return whether a slice has a ready endpoint."""
    return slice_ is not None and next(hosts((slice_,)), None) is not None


def numbers_by_labels(ports: Sequence[discovery_v1.EndpointPort]) -> dict[Labels, Numbers]:
    """Return the numbers of ports by their labels; if several have the same name, the last one."""
    named: dict[Labels, Numbers] = {}
    alike: dict[Labels, dict[int, None]] = {}
    for port in ports[:MAX_PORTS]:
        number = port.port or 0
        for labels in port_labels(port) if number else ():
            if labels[0] is None:
                alike.setdefault(labels, {})[number] = None
            else:
                named[labels] = number
    return named | {labels: tuple(numbers) for labels, numbers in alike.items()}
