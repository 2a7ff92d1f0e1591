"""Inventory of devices: ResourceSlices combined to pools, and the part of each pool that one node can use.

A driver publishes a pool in several slices of one generation. Older generations are outdated; a pool of which not all
slices have been seen is incomplete, one that names a device twice is invalid. Pools and slices are used in the order of
their names, so a driver says by names what is to be used first. Results of selectors are cached with the device.
Upstream: dynamic-resource-allocation/structured, pools.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from control import inline
from control.cel import CompileError, EvaluationError
from control.cel.devices import COST_LIMIT, device_value
from control.scheduler.devices.budget import Budget
from control.scheduler.devices.requests import Selector
from control.scheduler.devices.verdicts import Verdict, Verdicts
from kube import quantity
from kube.api import core_v1, resource_v1
from kube.informer import Change
from kube.node_affinity import term_matches

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
LOOK = 8
"""Units of cost to look at a device: some microseconds."""


class Offer:
    """One device as its slice offers it."""

    def __init__(self, slice_: resource_v1.ResourceSlice, device: resource_v1.Device) -> None:
        spec = slice_.spec
        self.driver, self.pool = spec.driver, spec.pool.name if spec.pool else ""
        self.id: DeviceId = (self.driver, self.pool, device.name)
        self.device, self.slice = device, slice_
        self._verdicts = Verdicts()

    @property
    def shared(self) -> bool:
        """True where several requests may have the device."""
        return bool(self.device.allow_multiple_allocations)

    @cached_property
    def _value(self) -> dict[str, Any]:
        return device_value(self.driver, self.device)

    def verdict(self, selector: Selector) -> Verdict | None:
        """Return the cached result of a selector for the device."""
        return self._verdicts.get(selector.expression)

    def evaluate(self, selector: Selector, budget: Budget) -> Verdict:
        """Evaluate a selector and cache the result; another thread may do it.

        Raises TooMuchHere where it costs too much on the event loop.
        """
        found: Verdict
        try:
            result = selector.program().evaluate({"device": self._value}, COST_LIMIT)
            budget.charge(result.cost)
            found = result.value is True
        except CompileError as error:
            found = f"CEL compile error: {error}"
        except EvaluationError as error:
            budget.charge(error.cost)
            found = f"CEL runtime error: {error}"
        return self._verdicts.put(selector.expression, found)

    @cached_property
    def price(self) -> int:
        """Units of cost to see whether a request can have the device, without its selectors."""
        capacity = len(self.device.capacity) if self.shared else 0
        return LOOK * (1 + capacity) + 4 * len(self.device.taints) + 2 * len(self.counters)

    @cached_property
    def capacity(self) -> dict[str, Decimal]:
        """The device's capacities by name, each with the domain left out where it is the driver's own."""
        prefix = f"{self.driver}/"
        return {name.removeprefix(prefix): quantity.parse(c.value) for name, c in self.device.capacity.items()}

    @cached_property
    def counters(self) -> tuple[tuple[str, str, Decimal], ...]:
        """Counters that the device consumes of its pool: (set, counter, amount)."""
        return tuple(
            (taken.counter_set, name, quantity.parse(counter.value))
            for taken in self.device.consumes_counters
            for name, counter in taken.counters.items()
        )


@dataclass(slots=True)
class Pool:
    """A pool as one node sees it."""

    driver: str
    name: str
    incomplete: bool
    invalid: str
    offers: list[Offer]
    """The devices that the node can use."""
    everything: list[Offer]
    """All devices, whose use counts against the counters."""
    counters: dict[tuple[str, str], Decimal]


@dataclass(frozen=True, slots=True)
class View:
    """Devices that one node can use: its pools, and their devices in allocation order."""

    version: int
    labels: dict[str, str]
    pools: list[Pool]
    offers: list[tuple[Offer, Pool]]


@dataclass(slots=True)
class _Source:
    """All slices of one pool."""

    slices: dict[str, tuple[resource_v1.ResourceSlice, list[Offer]]] = field(default_factory=dict)

    def current(self) -> list[tuple[resource_v1.ResourceSlice, list[Offer]]]:
        newest = max(_generation(found) for found, _ in self.slices.values())
        return [self.slices[n] for n in sorted(self.slices) if _generation(self.slices[n][0]) == newest]


class Inventory:
    """All slices, by pool and by node."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], _Source] = {}
        self._of_node: dict[str, set[tuple[str, str]]] = {}
        self._anywhere: set[tuple[str, str]] = set()
        self._where: dict[str, tuple[tuple[str, str], frozenset[str] | None]] = {}
        """Slice to its pool and the nodes that it names (None: nodes are chosen by labels)."""
        self._version = 0
        self._views: dict[str, View] = {}

    def changed(self, change: Change[resource_v1.ResourceSlice]) -> None:
        """Store what an informer reports."""
        self.remove(change.key)
        if change.type != "DELETED":
            self.add(change.key, change.new)

    def add(self, key: str, slice_: resource_v1.ResourceSlice) -> None:
        spec = slice_.spec
        self._version += 1
        pool = (spec.driver, spec.pool.name if spec.pool else "")
        names: frozenset[str] | None = frozenset({spec.node_name}) if spec.node_name else None
        if spec.per_device_node_selection and all(d.node_name for d in spec.devices):
            names = frozenset(d.node_name or "" for d in spec.devices)
        self._where[key] = (pool, names)
        offers = [Offer(slice_, device) for device in spec.devices]
        self._pools.setdefault(pool, _Source()).slices[key] = (slice_, offers)
        self._index(pool)

    def remove(self, key: str) -> None:
        found = self._where.pop(key, None)
        if found is None:
            return
        self._version += 1
        source = self._pools[found[0]]
        del source.slices[key]
        if not source.slices:
            del self._pools[found[0]]
        self._unindex(found[0], found[1])
        self._index(found[0])

    def _unindex(self, pool: tuple[str, str], names: frozenset[str] | None) -> None:
        self._anywhere.discard(pool)
        for name in names or ():
            known = self._of_node.get(name)
            if known is not None:
                known.discard(pool)
                if not known:
                    del self._of_node[name]

    def _index(self, pool: tuple[str, str]) -> None:
        for key in self._pools[pool].slices if pool in self._pools else ():
            names = self._where[key][1]
            if names is None:
                self._anywhere.add(pool)
            for name in names or ():
                self._of_node.setdefault(name, set()).add(pool)

    def view(self, node: core_v1.Node) -> View:
        """Return the pools with devices that a node can use, those whose devices need no preparation first.

        Raises TooMuchHere where that was much to put together; the next call has it at once.
        """
        name, labels = node.metadata.name or "", node.metadata.labels
        known = self._views.get(name)
        if known is not None and known.version == self._version and known.labels == labels:
            return known
        if self._views and next(iter(self._views.values())).version != self._version:
            self._views.clear()
        wanted = self._anywhere | self._of_node.get(name, set())
        found = [pool for pool in (self._seen(pool, node) for pool in sorted(wanted)) if pool is not None]
        found.sort(key=lambda pool: any(offer.device.binding_conditions for offer in pool.offers))
        offers = [(offer, pool) for pool in found for offer in pool.offers]
        self._views[name] = view = View(self._version, labels, found, offers)
        inline.spent(min(sum(len(pool.everything) for pool in found), inline.MOST))
        return view

    def _seen(self, name: tuple[str, str], node: core_v1.Node) -> Pool | None:
        slices = self._pools[name].current()
        offers = [offer for slice_, all_ in slices for offer in all_ if _usable(slice_.spec, offer.device, node)]
        if not offers:
            return None
        everything = [offer for _, all_ in slices for offer in all_]
        expected = max(s.spec.pool.resource_slice_count if s.spec.pool else 1 for s, _ in slices)
        twice = _twice(offer.device.name for offer in everything)
        counters = {
            (set_.name, counter): quantity.parse(value.value)
            for slice_, _ in slices
            for set_ in slice_.spec.shared_counters
            for counter, value in set_.counters.items()
        }
        invalid = f"duplicate device name {twice}" if twice else ""
        return Pool(name[0], name[1], len(slices) != expected, invalid, offers, everything, counters)


def _generation(slice_: resource_v1.ResourceSlice) -> int:
    return slice_.spec.pool.generation if slice_.spec.pool else 0


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _usable(spec: resource_v1.ResourceSliceSpec, device: resource_v1.Device, node: core_v1.Node) -> bool:
    if spec.per_device_node_selection:
        return _chosen(device.node_name, device.all_nodes, device.node_selector, node)
    return _chosen(spec.node_name, spec.all_nodes, spec.node_selector, node)


def _chosen(
    name: str | None, everywhere: bool | None, selector: core_v1.NodeSelector | None, node: core_v1.Node
) -> bool:
    if name:
        return name == node.metadata.name
    return bool(everywhere) or (
        selector is not None and any(term_matches(term, node) for term in selector.node_selector_terms)
    )
