"""All Services and endpoint slices, and which Services a change touches: it costs one Service's work however many there are."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Sequence
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
class Taken:
    """A port of a load balancer at the node's own address that a program of the node listens on."""

    key: str
    address: str
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port}/{self.protocol} at {self.address} is in use by a program"


class ServiceTable:
    """All Services and slices known, and the Services whose desired state may have changed since last asked."""

    def __init__(
        self,
        node: NodeView,
        families: Collection[int] = (4,),
        served_here: Collection[str] = (),
        *,
        cost: ModeCost = PAIRS,
    ) -> None:
        """`cost` is what the proxy mode writes for a port."""
        self._node, self._families, self._served_here = node, families, served_here
        self._cost = cost
        self._budget = NamespaceBudget(cost.max_in_namespace)
        self._planned: dict[str, tuple[ServicePort, ...]] = {}
        self.too_large: dict[str, str] = {}
        """Services that are not served because of what they would cost, and why."""
        self._services: dict[str, core_v1.Service] = {}
        self._elsewhere: frozenset[str] = frozenset()
        self._by_balancer_ip: dict[str, set[str]] = {}
        self._own: frozenset[str] = frozenset()
        self._taken: frozenset[Taken] = frozenset()
        self._taken_sockets: frozenset[tuple[str, str, int]] = frozenset()
        self._slices: dict[str, dict[str, discovery_v1.EndpointSlice]] = {}
        self._dirty: set[str] = set()

    def __len__(self) -> int:
        return len(self._services)

    def set_service(self, key: str, service: core_v1.Service) -> None:
        """Take in a Service; one that is planned as before, whatever else of it changed, is not touched."""
        known = self._services.get(key)
        self._index(key, service)
        self._services[key] = service
        if known is None or not _planned_alike(known, service):
            self._dirty.add(key)

    def delete_service(self, key: str) -> None:
        self._index(key, None)
        if self._services.pop(key, None) is not None:
            self._dirty.add(key)

    def _index(self, key: str, service: core_v1.Service | None) -> None:
        """Note by which load balancer addresses a Service is to be found."""
        for ip in _balancer_addresses(self._services.get(key)):
            self._by_balancer_ip.get(ip, set()).discard(key)
        for ip in _balancer_addresses(service):
            self._by_balancer_ip.setdefault(ip, set()).add(key)

    def set_elsewhere(self, address: str, present: bool) -> None:
        """Take in that an address is another node's own, or no longer."""
        if (address in self._elsewhere) != present:
            self._elsewhere ^= {address}
            self._dirty.update(self._by_balancer_ip.get(address, ()))

    def set_own(self, addresses: frozenset[str]) -> None:
        """Take in the node's own addresses; what listens there is to be looked at again."""
        self._own = addresses

    @property
    def balances_here(self) -> bool:
        """Whether any Service has, or had when last looked, a load balancer at the node's own address."""
        return bool(self._taken) or any(self._by_balancer_ip.get(address) for address in self._own)

    @property
    def balancer_dirty(self) -> bool:
        """Whether such a Service has changed."""
        return any(not self._dirty.isdisjoint(self._by_balancer_ip.get(address, ())) for address in self._own)

    def set_listeners(self, listeners: Listeners) -> list[Taken]:
        """Leave ports to the programs that listen on them; return those that were not left to them before."""
        taken = frozenset(
            Taken(key, address, protocol, port.port)
            for address in self._own
            for key in self._by_balancer_ip.get(address, ())
            for port in self._services[key].spec.ports
            if self._services[key].spec.type == "LoadBalancer"
            and listeners.on(protocol := port.protocol or "TCP", address, port.port)
        )
        found = sorted(taken - self._taken)
        self._dirty.update(each.key for each in taken ^ self._taken)
        self._taken = taken
        self._taken_sockets = frozenset((each.address, each.protocol, each.port) for each in taken)
        return found

    def service(self, key: str) -> core_v1.Service | None:
        """Return a Service as it was last seen."""
        return self._services.get(key)

    def set_slice(self, slice_: discovery_v1.EndpointSlice) -> None:
        """Take in a slice; one without the service-name label belongs to no Service, a headless one is not proxied."""
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
        """Take in what the node says of itself; a new zone or name touches every Service."""
        if node != self._node:
            self._node = node
            self._dirty.update(self._services)

    @property
    def dirty(self) -> bool:
        return bool(self._dirty)

    @property
    def only_newborn(self) -> bool:
        """Whether all that changed are Services with a selector whose first slice has yet to come."""
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
        return parts + sum(len(each.endpoints) * len(each.ports) for each in self._slices.get(key, {}).values())

    async def _plan(self, key: str, size: int) -> Planned:
        """Return the desired state of a Service; nothing for one that costs too much, which `too_large` then names."""
        service, before = self._services.get(key), self._planned.pop(key, ())
        self.too_large.pop(key, None)
        if service is None:
            return (), 0
        make = functools.partial(
            _plan,
            service,
            tuple(self._slices.get(key, {}).values()),
            self._node,
            self._families,
            self._served_here,
            self._elsewhere,
            self._taken_sockets,
            before,
            self._cost,
        )
        try:
            ports, rules = await large_changes.made_of(size, make)
        except ServiceError as error:
            self.too_large[key] = str(error)
            return (), 0
        if ports:
            self._planned[key] = ports
        return ports, rules

    def try_left_out(self, now: float) -> None:
        """Have Services planned again that were left out for what those of their namespace cost, where there is room now."""
        self._dirty.update(self._budget.due(now))


def _plan(
    service: core_v1.Service,
    slices: Sequence[discovery_v1.EndpointSlice],
    node: NodeView,
    families: Collection[int],
    served_here: Collection[str],
    elsewhere: Collection[str],
    taken: Collection[tuple[str, str, int]],
    before: tuple[ServicePort, ...],
    cost: ModeCost,
) -> Planned:
    """Return the desired state of a Service: `before` itself where it is the same, which is then seen at once."""
    ports = plan_service(service, slices, node, families, served_here, elsewhere, taken, before, cost)
    return before if ports == before else ports, rules_of(ports, cost)


def _planned_alike(one: core_v1.Service, other: core_v1.Service) -> bool:
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
