"""The addresses and ports of stored Services and the records of addresses, read from their bytes and no more of them.

A server that shares its store looks at all Services for each write of one. Each is read once for each of its versions, and
many that were not read yet (as at the start) in steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from control.event_loop.pacing import TimeSlice
from control.registry.core.service.allocations import family_of
from control.registry.strategy_context import ReleaseContext, Stored
from kube.ip_addresses import canonical, family, lenient
from kube.json_object import Object


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None


class _Part(msgspec.Struct, rename="camel"):
    node_port: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    type: str | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    ports: list[_Part] | None = None
    health_check_node_port: int | None = None


class _Service(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _RecordSpec(msgspec.Struct, rename="camel"):
    parent_ref: dict[str, Any] | None = None


class Record(msgspec.Struct):
    """An IPAddress object."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _RecordSpec = msgspec.field(default_factory=_RecordSpec)


@dataclass(frozen=True)
class ServiceAllocation:
    """Addresses, in their canonical form, and ports of a stored Service; `owner` is its namespace and name."""

    owner: str
    addresses: list[str]
    ports: list[int]

    @cached_property
    def numbers(self) -> list[tuple[str, int]]:
        """The families of the addresses, and the addresses as numbers."""
        return [(family_of(ip), int(lenient(ip))) for ip in self.addresses]


class StoredServices:
    """Allocations of the stored Services; read it if many may have changed, before `all` reads the others at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, ServiceAllocation]] = {}

    async def read(self, context: ReleaseContext) -> None:
        """Read those that have changed, in steps."""
        time_slice = TimeSlice()
        for entry in context.entries("", "v1", "services"):
            if not self._is_known(entry):
                await time_slice.step(len(entry.data))
                self._known[entry.key] = entry.data, _allocation(entry.data)

    def all(self, context: ReleaseContext) -> list[ServiceAllocation]:
        """Return what all Services have now."""
        found = {}
        for entry in context.entries("", "v1", "services"):
            known = self._known[entry.key] if self._is_known(entry) else (entry.data, _allocation(entry.data))
            found[entry.key] = known
        self._known = found
        return [allocation for _, allocation in found.values()]

    def forget(self) -> None:
        """Keep nothing of what was read, which holds the bytes of all Services, deleted ones too, until it is read again."""
        self._known.clear()

    def _is_known(self, entry: Stored) -> bool:
        known = self._known.get(entry.key)
        return known is not None and known[0] == entry.data


def record_of(entry: Stored) -> Record:
    """Read the record of an address."""
    return msgspec.json.decode(entry.data, type=Record)


def allocation_of_spec(spec: Object) -> tuple[list[str], list[int]]:
    """Return the addresses and ports that a Service with a spec has."""
    return _addresses_and_ports(msgspec.convert(spec, _Spec))


def _allocation(data: bytes) -> ServiceAllocation:
    service = msgspec.json.decode(data, type=_Service)
    return ServiceAllocation(
        f"{service.metadata.namespace}/{service.metadata.name}", *_addresses_and_ports(service.spec)
    )


def _addresses_and_ports(spec: _Spec) -> tuple[list[str], list[int]]:
    if spec.type == "ExternalName":
        return [], []
    ips = spec.cluster_ips or ([spec.cluster_ip] if spec.cluster_ip else [])
    ports = [part.node_port for part in spec.ports or () if part.node_port]
    if spec.health_check_node_port:
        ports.append(spec.health_check_node_port)
    return [canonical(ip) for ip in ips if family(ip)], list(dict.fromkeys(ports))
