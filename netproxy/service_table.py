"""Table of all Services and endpoint slices, and of the Services that changes touch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from kube.api import core_v1, discovery_v1
from netproxy import large_changes
from netproxy.endpoints import NodeView
from netproxy.errors import ServiceError
from netproxy.large_changes import LARGE
from netproxy.listeners import Listeners
from netproxy.model import HEADLESS_LABEL, ServicePort, is_proxied, owner_of, plan_service
from netproxy.namespace_budget import NamespaceBudget, rules_of
from netproxy.service_limits import PAIRS, ModeCost

Planned = tuple[tuple[ServicePort, ...], int]
"""The desired state of a Service, and how many rules it takes."""


@dataclass(frozen=True, slots=True, order=True)
class PortInUse:
    """A port of a load balancer at the node's own address that a program of the node listens on."""

    key: str
    address: str
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port}/{self.protocol} at {self.address} is in use by a program"


class ServiceTable:
    """All Services and slices known, and the Services whose desired state may have changed since the last call."""

    def __init__(
        self,
        node: NodeView,
        families: Collection[int] = (4,),
        local_cluster_ips: Collection[str] = (),
        *,
        cost: ModeCost = PAIRS,
    ) -> None:
        """`cost` is what the proxy mode writes for a port."""
        self._node, self._families, self._local_cluster_ips = node, families, local_cluster_ips
        self._cost = cost
        self._budget = NamespaceBudget(cost.max_in_namespace)
        self._planned: dict[str, tuple[ServicePort, ...]] = {}
        self.too_large: dict[str, str] = {}
        """Services that are not served because of what they would cost, and why."""
        self._services: dict[str, core_v1.Service] = {}
        self._other_node_addresses: frozenset[str] = frozenset()
        self._by_balancer_ip: dict[str, set[str]] = {}
        self._by_balancer_port: dict[tuple[str, int], tuple[str, ...]] = {}
        """Protocol and port -> Services. There are more ports than programs that listen, so these are looked up here."""
        self._own_addresses: frozenset[str] = frozenset()
        self._ports_in_use: frozenset[PortInUse] = frozenset()
        self._sockets_in_use: frozenset[tuple[str, str, int]] = frozenset()
        self._slices: dict[str, dict[str, discovery_v1.EndpointSlice]] = {}
        self._dirty: set[str] = set()

    def __len__(self) -> int:
        return len(self._services)

    def set_service(self, key: str, service: core_v1.Service) -> None:
        """Store a Service; one that is planned as before, whatever else of it changed, is not dirty."""
        known = self._services.get(key)
        self._index(key, service)
        self._services[key] = service
        if known is None or not _same_plan(known, service):
            self._dirty.add(key)

    def delete_service(self, key: str) -> None:
        self._index(key, None)
        if self._services.pop(key, None) is not None:
            self._dirty.add(key)

    def _index(self, key: str, service: core_v1.Service | None) -> None:
        """Update the load balancer addresses and ports by which a Service is found."""
        for ip in _balancer_addresses(self._services.get(key)):
            self._by_balancer_ip.get(ip, set()).discard(key)
        for ip in _balancer_addresses(service):
            self._by_balancer_ip.setdefault(ip, set()).add(key)
        before, after = _balancer_ports(self._services.get(key)), _balancer_ports(service)
        for port in before - after:
            left = tuple(each for each in self._by_balancer_port.pop(port, ()) if each != key)
            if left:
                self._by_balancer_port[port] = left
        for port in after - before:
            self._by_balancer_port[port] = (*self._by_balancer_port.get(port, ()), key)

    def set_other_node_address(self, address: str, *, present: bool) -> None:
        """Store that an address is another node's own, or no longer."""
        if (address in self._other_node_addresses) != present:
            self._other_node_addresses ^= {address}
            self._dirty.update(self._by_balancer_ip.get(address, ()))

    def set_own_addresses(self, addresses: frozenset[str]) -> None:
        """Store the node's own addresses; the caller then reads the listeners again."""
        self._own_addresses = addresses

    @property
    def has_load_balancer_here(self) -> bool:
        """True if any Service has, or had when last looked, a load balancer at the node's own address."""
        return bool(self._ports_in_use) or any(self._by_balancer_ip.get(address) for address in self._own_addresses)

    @property
    def load_balancer_here_dirty(self) -> bool:
        """True if such a Service has changed."""
        return any(not self._dirty.isdisjoint(self._by_balancer_ip.get(address, ())) for address in self._own_addresses)

    def set_listeners(self, listeners: Listeners) -> list[PortInUse]:
        """Leave ports to the programs that listen on them; return those that were not left to them before."""
        ports_in_use = frozenset(
            PortInUse(key, address, protocol, number)
            for address in self._own_addresses
            if (balanced := self._by_balancer_ip.get(address))
            for protocol, number in listeners.ports_at(address)
            for key in self._by_balancer_port.get((protocol, number), ())
            if key in balanced
        )
        found = sorted(ports_in_use - self._ports_in_use)
        self._dirty.update(each.key for each in ports_in_use ^ self._ports_in_use)
        self._ports_in_use = ports_in_use
        self._sockets_in_use = frozenset((each.address, each.protocol, each.port) for each in ports_in_use)
        return found

    def service(self, key: str) -> core_v1.Service | None:
        """Return a Service as it was last seen."""
        return self._services.get(key)

    def set_slice(self, slice_: discovery_v1.EndpointSlice) -> None:
        """Store a slice; one without the service-name label belongs to no Service, a headless one is not proxied."""
        if HEADLESS_LABEL in slice_.metadata.labels:
            return self.delete_slice(slice_)
        owner = owner_of(slice_)
        if owner:
            slices, name = self._slices.setdefault(owner, {}), slice_.metadata.name or ""
            known, slices[name] = slices.get(name), slice_
            if known is None or not _same_endpoints(known, slice_):
                self._dirty.add(owner)

    def delete_slice(self, slice_: discovery_v1.EndpointSlice) -> None:
        owner = owner_of(slice_)
        known = self._slices.get(owner)
        if known is not None and known.pop(slice_.metadata.name or "", None) is not None:
            self._dirty.add(owner)
            if not known:
                del self._slices[owner]

    def set_node(self, node: NodeView) -> None:
        """Store this node's name and zone; a change makes every Service dirty."""
        if node != self._node:
            self._node = node
            self._dirty.update(self._services)

    @property
    def dirty(self) -> bool:
        return bool(self._dirty)

    @property
    def only_awaits_slices(self) -> bool:
        """True if all that changed are Services with a selector whose first slice has yet to come."""
        return bool(self._dirty) and all(
            key not in self._slices and (service := self._services.get(key)) is not None and bool(service.spec.selector)
            for key in self._dirty
        )

    async def take_changes(self) -> dict[str, tuple[ServicePort, ...]]:
        """Return the desired state of each Service touched since the last call; () for one that is gone.

        Others run meanwhile: a thread plans large Services, and many small ones are planned in slices.
        """
        keys, self._dirty = self._dirty, set()
        found: dict[str, tuple[ServicePort, ...]] = {}
        work = 0
        for key in keys:
            size = self._size(key)
            found[key], rules = await self._plan(key, size)
            for left_out in self._budget.put(key, rules):
                found[left_out] = ()
                self.too_large[left_out] = self._budget.why
            work += size
            if work > LARGE:
                work = 0
                await asyncio.sleep(0)
        return found

    def _size(self, key: str) -> int:
        """Return how many parts of a Service and its slices are read to plan it."""
        service = self._services.get(key)
        if service is None:
            return 1
        spec = service.spec
        parts = len(spec.ports) + len(spec.external_ips) + len(spec.load_balancer_source_ranges)
        parts += len(service.status.load_balancer.ingress) if service.status.load_balancer else 0
        return parts + sum(len(each.endpoints) * len(each.ports) for each in self._slices.get(key, {}).values())

    async def _plan(self, key: str, size: int) -> Planned:
        """Return the desired state of a Service; nothing for one that costs too much, which `too_large` then names."""
        service, before = self._services.get(key), self._planned.pop(key, ())
        self.too_large.pop(key, None)
        if service is None:
            return (), 0
        slices = tuple(self._slices.get(key, {}).values())
        node, families, others = self._node, self._families, self._other_node_addresses
        local_ips, in_use, cost = self._local_cluster_ips, self._sockets_in_use, self._cost

        def make() -> Planned:
            """Return the desired state: `before` itself where it is equal, which is then found at once."""
            ports = plan_service(service, slices, node, families, local_ips, others, in_use, before, cost)
            return before if ports == before else ports, rules_of(ports, cost)

        try:
            ports, rules = await large_changes.compute_sized(size, make)
        except ServiceError as error:
            self.too_large[key] = str(error)
            return (), 0
        if ports:
            self._planned[key] = ports
        return ports, rules

    def retry_unserved(self, now: float) -> None:
        """Plan Services again that were not served for the cost of their namespace, where there is room now."""
        self._dirty.update(self._budget.due(now))


def _same_plan(one: core_v1.Service, other: core_v1.Service) -> bool:
    """Return whether the same is planned for two states of a Service."""
    return (
        one.spec == other.spec
        and one.status.load_balancer == other.status.load_balancer
        and is_proxied(one) == is_proxied(other)
    )


def _same_endpoints(one: discovery_v1.EndpointSlice, other: discovery_v1.EndpointSlice) -> bool:
    return (one.address_type, one.ports, one.endpoints) == (other.address_type, other.ports, other.endpoints)


def _balancer_addresses(service: core_v1.Service | None) -> set[str]:
    status = service.status.load_balancer if service is not None else None
    return {ingress.ip for ingress in (status.ingress if status else ()) if ingress.ip}


def _balancer_ports(service: core_v1.Service | None) -> set[tuple[str, int]]:
    """Return the protocols and ports of a Service that has load balancer addresses."""
    if service is None or service.spec.type != "LoadBalancer" or not _balancer_addresses(service):
        return set()
    return {(port.protocol or "TCP", port.port) for port in service.spec.ports}
