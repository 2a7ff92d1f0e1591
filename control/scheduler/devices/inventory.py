"""Inventory of devices: ResourceSlices combined to pools, and the part of each pool that one node can use.

A driver publishes a pool in several slices of one generation. Older generations are outdated; a pool of which not all
slices have been seen is incomplete, one that names a device twice is invalid. Pools and slices are used in the order of
their names, so a driver chooses the order by names.
Upstream: dynamic-resource-allocation/structured, pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

import msgspec

from control.event_loop import inline
from control.scheduler.devices.slice_device import SliceDevice
from kube import quantity
from kube.api import core_v1, resource_v1
from kube.informer import Change
from kube.node_affinity import term_matches


class Pool(msgspec.Struct):
    """A pool as one node sees it."""

    driver: str
    name: str
    incomplete: bool
    invalid: str
    devices: list[SliceDevice]
    """The devices that the node can use."""
    everything: list[SliceDevice]
    """All devices, whose use counts against the counters."""
    counters: dict[tuple[str, str], Decimal]


class View(msgspec.Struct, frozen=True):
    """Devices that one node can use: its pools, and their devices in allocation order."""

    version: int
    labels: dict[str, str]
    pools: list[Pool]
    devices: list[tuple[SliceDevice, Pool]]


class _PoolSlices(msgspec.Struct):
    """All slices of one pool."""

    slices: dict[str, tuple[resource_v1.ResourceSlice, list[SliceDevice]]] = msgspec.field(default_factory=dict)

    def current(self, node: str) -> list[tuple[resource_v1.ResourceSlice, list[SliceDevice]]]:
        """Return the slices of the newest generation, without those of other nodes, which may name any pool."""
        here = [name for name, (found, _) in self.slices.items() if found.spec.node_name in (None, "", node)]
        newest = max((_generation(self.slices[name][0]) for name in here), default=0)
        return [self.slices[name] for name in sorted(here) if _generation(self.slices[name][0]) == newest]


class Inventory:
    """All slices, by pool and by node."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], _PoolSlices] = {}
        self._of_node: dict[str, Counter[tuple[str, str]]] = {}
        """Node to the pools with slices that name it, and how many these are."""
        self._anywhere: Counter[tuple[str, str]] = Counter()
        """The same of slices whose nodes are chosen by labels."""
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
        devices = [SliceDevice(slice_, device) for device in spec.devices]
        self._pools.setdefault(pool, _PoolSlices()).slices[key] = (slice_, devices)
        self._count(pool, names, 1)

    def remove(self, key: str) -> None:
        found = self._where.pop(key, None)
        if found is None:
            return
        self._version += 1
        pool_slices = self._pools[found[0]]
        del pool_slices.slices[key]
        if not pool_slices.slices:
            del self._pools[found[0]]
        self._count(*found, -1)

    def _count(self, pool: tuple[str, str], names: frozenset[str] | None, by: int) -> None:
        if names is None:
            self._anywhere[pool] += by
            if not self._anywhere[pool]:
                del self._anywhere[pool]
        for name in names or ():
            known = self._of_node.setdefault(name, Counter())
            known[pool] += by
            if not known[pool]:
                del known[pool]
            if not known:
                del self._of_node[name]

    def view(self, node: core_v1.Node) -> View:
        """Return the pools with devices that a node can use, those whose devices need no preparation first.

        Raises TooMuchHere if that was much to put together; the next call has it at once.
        """
        name, labels = node.metadata.name or "", node.metadata.labels
        known = self._views.get(name)
        if known is not None and known.version == self._version and known.labels == labels:
            return known
        if self._views and next(iter(self._views.values())).version != self._version:
            self._views.clear()
        names = self._anywhere.keys() | self._of_node.get(name, Counter()).keys()
        found = [pool for pool in (self._seen(pool, node) for pool in sorted(names)) if pool is not None]
        found.sort(key=lambda pool: any(device.entry.binding_conditions for device in pool.devices))
        devices = [(device, pool) for pool in found for device in pool.devices]
        self._views[name] = view = View(self._version, labels, found, devices)
        inline.spent(min(sum(len(pool.everything) for pool in found), inline.MOST))
        return view

    def _seen(self, name: tuple[str, str], node: core_v1.Node) -> Pool | None:
        slices = self._pools[name].current(node.metadata.name or "")
        devices = [device for slice_, all_ in slices for device in all_ if _usable(slice_.spec, device.entry, node)]
        if not devices:
            return None
        everything = [device for _, all_ in slices for device in all_]
        expected = max(s.spec.pool.resource_slice_count if s.spec.pool else 1 for s, _ in slices)
        twice = _twice(device.entry.name for device in everything)
        counters = {
            (set_.name, counter): quantity.parse(value.value)
            for slice_, _ in slices
            for set_ in slice_.spec.shared_counters
            for counter, value in set_.counters.items()
        }
        invalid = f"duplicate device name {twice}" if twice else ""
        return Pool(name[0], name[1], len(slices) != expected, invalid, devices, everything, counters)


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
        return _chosen(device.node_name, everywhere=device.all_nodes, selector=device.node_selector, node=node)
    return _chosen(spec.node_name, everywhere=spec.all_nodes, selector=spec.node_selector, node=node)


def _chosen(
    name: str | None, *, everywhere: bool | None, selector: core_v1.NodeSelector | None, node: core_v1.Node
) -> bool:
    if name:
        return name == node.metadata.name
    return bool(everywhere) or (
        selector is not None and any(term_matches(term, node) for term in selector.node_selector_terms)
    )
