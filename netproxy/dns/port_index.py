"""Index of ports by Service and the labels of SRV names, updated incrementally.

Pods that give different numbers to a port's name get a slice each, so a Service may have thousands. Only slices with a ready
endpoint are held: each leads to a record. A port takes some 100 bytes; those of a Service of few ports are read where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import intern
from typing import TypeGuard

from kube.api import core_v1, discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import Host, Labels, hosts, port_labels
from netproxy.model import owner_of

Numbers = int | tuple[int, ...]
"""The number of a port with a name, or all that differ of ports of any name."""
MAX_PORTS = 2000
"""Ports of a slice that have SRV records: one may have 20 000."""
FEW = 16
"""Ports of a Service that are read one by one."""


class ServicePorts:
    """Follows Services."""

    def __init__(self, services: Informer[core_v1.Service]) -> None:
        self._tables: dict[str, dict[str, core_v1.ServicePort]] = {}
        """Of Services of many ports: these by name, and one of each protocol by its label, which is no name ("_tcp")."""
        services.subscribe(self._changed)

    def port_numbers(
        self, key: str, ports: Sequence[core_v1.ServicePort], port: str | None, protocol: str | None
    ) -> Iterator[int]:
        """Iterate over the ports of a Service with these labels (None: any); of a protocol alone one may stand for all."""
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
    """Follows slices. A change of a slice's ports costs all of them."""

    def __init__(self, slices: Informer[discovery_v1.EndpointSlice]) -> None:
        self._slices = slices
        self._tables: dict[str, dict[Labels, dict[str, Numbers]]] = {}
        """Numbers by Service, labels and slice."""
        slices.subscribe(self._changed)

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Iterate over the ports with these labels (None: any) of the ready endpoints of a Service."""
        for slice_key, found in self._tables.get(key, {}).get((port, protocol), {}).items():
            slice_ = self._slices.get(slice_key)
            numbers = found if isinstance(found, tuple) else (found,)
            labels: set[str] = set()
            for host in hosts((slice_,)) if slice_ is not None else ():
                # Its further addresses have the same records.
                for number in numbers[:1] if host.hostname in labels else numbers:
                    yield host, number
                labels.add(host.hostname)

    def _changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        old, new = change.old, change.new if change.type != "DELETED" else None
        before, after = owner_of(old) if _leads(old) else "", owner_of(new) if _leads(new) else ""
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
            self._tables.setdefault(intern(after), {}).setdefault(labels, {})[slice_key] = numbers


def _leads(slice_: discovery_v1.EndpointSlice | None) -> TypeGuard[discovery_v1.EndpointSlice]:
    """Return whether a slice has a ready endpoint."""
    return slice_ is not None and next(hosts((slice_,)), None) is not None


def numbers_by_labels(ports: Sequence[discovery_v1.EndpointPort]) -> dict[Labels, Numbers]:
    """Return the numbers of ports by their labels; of several with the same name the last."""
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
