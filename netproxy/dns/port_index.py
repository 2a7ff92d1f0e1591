"""Index of ports by Service and the labels of SRV names, updated incrementally.

Pods that give different numbers to a port's name get a slice each, so a Service may have thousands. Only slices with a ready
endpoint are held: each leads to a record. A port takes some 100 bytes; those of a Service of few ports are read where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import intern

from kube.api import core_v1, discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import Host, Labels, hosts, port_labels
from netproxy.model import owner_of

_Relation = tuple[str, Labels, int]
"""The key of a Service, the labels that lead to a port, and its number."""
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
    """Follows slices. A change costs the ports of the slice."""

    def __init__(self, slices: Informer[discovery_v1.EndpointSlice]) -> None:
        self._slices = slices
        self._tables: dict[str, dict[Labels, dict[str, int]]] = {}
        """Numbers by Service, labels and slice; of labels that stand for several ports it is one of them."""
        slices.subscribe(self._changed)

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Iterate over the ports with these labels (None: any) of the ready endpoints of a Service."""
        for slice_key, number in self._tables.get(key, {}).get((port, protocol), {}).items():
            slice_ = self._slices.get(slice_key)
            if slice_ is not None:
                numbers = [number] if port else _numbers(slice_, protocol)
                for host in hosts((slice_,)):
                    for each in numbers:
                        yield host, each

    def _changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        old = _relations(change.old) if change.old is not None else set()
        new = _relations(change.new) if change.type != "DELETED" else set()
        slice_key = change.key
        for key, labels, _ in old - new:
            table = self._tables[key]
            del table[labels][slice_key]
            if not table[labels]:
                del table[labels]
            if not table:
                del self._tables[key]
        for key, labels, number in new - old:
            self._tables.setdefault(intern(key), {}).setdefault(labels, {})[slice_key] = number


def _relations(slice_: discovery_v1.EndpointSlice) -> set[_Relation]:
    key = owner_of(slice_)
    if not key or next(hosts((slice_,)), None) is None:
        return set()
    found = {labels: port.port for port in slice_.ports if port.port for labels in port_labels(port)}
    return {(key, labels, number) for labels, number in found.items()}


def _numbers(slice_: discovery_v1.EndpointSlice, protocol: str | None) -> list[int]:
    return [port.port for port in slice_.ports if port.port and (None, protocol) in port_labels(port)]
