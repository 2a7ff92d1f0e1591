"""Table of all Services and endpoint slices, and of the Services that changes touch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Set

from kube.api import core_v1, discovery_v1
from kube.ip_addresses import canonical
from netproxy import gateway_endpoints, large_changes
from netproxy.balancer_ports import BalancerPorts, PortInUse, balancer_addresses
from netproxy.endpoints import NodeView
from netproxy.errors import ServiceError
from netproxy.large_changes import LARGE
from netproxy.listeners import Socket
from netproxy.model import HEADLESS_LABEL, ServicePort, is_proxied, owner_of, plan_service
from netproxy.namespace_budget import NamespaceBudget, rules_of
from netproxy.service_limits import PAIRS, ModeCost
from netproxy.socket_channel import Address

Planned = tuple[tuple[ServicePort, ...], int]
"""The desired state of a Service, and how many rules it takes."""


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
        self.balancer_ports = BalancerPorts()
        self._slices: dict[str, dict[str, discovery_v1.EndpointSlice]] = {}
        self._gateway_addresses: frozenset[Address] = frozenset()
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
        known = self._services.get(key)
        for ip in balancer_addresses(known):
            self._by_balancer_ip.get(ip, set()).discard(key)
        for ip in balancer_addresses(service):
            self._by_balancer_ip.setdefault(ip, set()).add(key)
        self.balancer_ports.replace(key, known, service)

    def set_other_node_address(self, address: str, *, present: bool) -> None:
        """Store that an address is another node's own, or no longer."""
        address = canonical(address)
        if (address in self._other_node_addresses) != present:
            self._other_node_addresses ^= {address}
            self._dirty.update(self._by_balancer_ip.get(address, ()))

    def set_own_addresses(self, addresses: frozenset[str]) -> None:
        """Store the node's own addresses; Services with a load balancer at one that comes or goes are dirty."""
        addresses = frozenset(map(canonical, addresses))
        changed = self.balancer_ports.own_addresses ^ addresses
        keys = {key for address in changed for key in self._by_balancer_ip.get(address, ())}
        self.balancer_ports.set_own_addresses(addresses, {key: self._services[key] for key in keys})
        self._dirty |= keys

    def set_in_use(self, looked_up: Set[Socket], in_use: Set[Socket]) -> list[PortInUse]:
        """Leave ports in use to the programs that listen on them; return those that were not left to them before."""
        found, dirty = self.balancer_ports.set_in_use(looked_up, in_use)
        self._dirty.update(dirty)
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

    def set_gateway_addresses(self, addresses: frozenset[Address]) -> None:
        """Store the addresses on which the node's gateway listens; the Services of Gateways are dirty."""
        if addresses != self._gateway_addresses:
            self._gateway_addresses = addresses
            self._dirty.update(key for key in self._slices if gateway_endpoints.is_gateways_key(key))

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
        node, families, others = self._node, self._families, self._other_node_addresses
        slices = gateway_endpoints.without_other_endpoints(
            self._slices.get(key, {}).values(), node, self._gateway_addresses
        )
        local_ips, in_use, cost = self._local_cluster_ips, self.balancer_ports.not_free(service), self._cost

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
        self._dirty.update(self._budget.retries(now))


def _same_plan(one: core_v1.Service, other: core_v1.Service) -> bool:
    """Return whether the same is planned for two states of a Service."""
    return (
        one.spec == other.spec
        and one.status.load_balancer == other.status.load_balancer
        and is_proxied(one) == is_proxied(other)
    )


def _same_endpoints(one: discovery_v1.EndpointSlice, other: discovery_v1.EndpointSlice) -> bool:
    return (one.address_type, one.ports, one.endpoints) == (other.address_type, other.ports, other.endpoints)
