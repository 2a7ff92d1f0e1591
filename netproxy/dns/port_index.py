"""Ports of slices by Service and the labels of SRV names, kept current change by change.

Pods that give different numbers to a port's name get a slice each, so a Service may have thousands. Only slices with a ready
endpoint are held: each leads to a record. A port of a slice takes some 100 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from kube.api import discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import Host, Labels, hosts, port_labels
from netproxy.model import owner_of

_Relation = tuple[str, Labels, int]
"""The key of a Service, the labels that lead to a port, and its number."""


class PortIndex:
    """Follows slices. A change costs the ports of the slice."""

    def __init__(self, slices: Informer[discovery_v1.EndpointSlice]) -> None:
        self._slices = slices
        self._tables: dict[str, dict[Labels, dict[str, int]]] = {}
        """Numbers by Service, labels and slice; of labels that stand for several ports it is one of them."""
        slices.subscribe(self._changed)

    def ends(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Go through the ports with these labels (None: any) of the ready endpoints of a Service."""
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
