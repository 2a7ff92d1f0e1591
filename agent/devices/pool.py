"""The devices of one resource: their health and NUMA nodes, and the choice of devices for a container. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from agent.managers.errors import AdmissionError
from agent.managers.hints import Hint, mask_of, masks, nodes_of

ANYWHERE = -1
"""The node ID of devices without topology in the checkpoint."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `nodes` are the NUMA nodes that it is close to."""

    healthy: bool
    nodes: tuple[int, ...] = ()


@dataclass(slots=True)
class Pool:
    """One resource's devices, by ID."""

    resource: str
    devices: dict[str, Device] = field(default_factory=dict)

    @property
    def healthy(self) -> set[str]:
        return {name for name, device in self.devices.items() if device.healthy}

    def lost(self) -> None:
        """Mark all devices as unhealthy after the plugin has disconnected."""
        self.devices = {name: Device(False, device.nodes) for name, device in self.devices.items()}

    @property
    def placed(self) -> bool:
        """True if any device has topology."""
        return any(device.nodes for device in self.devices.values())

    def by_node(self, ids: Iterable[str]) -> dict[int, list[str]]:
        """Group device IDs by their NUMA nodes."""
        found: dict[int, list[str]] = {}
        for name in sorted(ids):
            device = self.devices.get(name)
            for node in (device.nodes if device else ()) or (ANYWHERE,):
                found.setdefault(node, []).append(name)
        return found

    def check(self, need: int, free: Collection[str]) -> None:
        """Raise AdmissionError if this number of devices is not available."""
        if not any(device.healthy for device in self.devices.values()):
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {self.resource}")
        if len(free) < need:
            raise AdmissionError(
                f"requested number of devices unavailable for {self.resource}. Requested: {need}, Available: {len(free)}"
            )

    def sort_by_affinity(self, free: Iterable[str], affinity: int | None) -> tuple[list[str], list[str]]:
        """Split free devices into those on the nodes of an affinity, the scarcest node first, and the others."""
        free = sorted(free)
        if affinity is None or not self.placed:
            return [], free
        nodes = self.by_node(free)
        wanted = sorted((node for node in nodes_of(affinity) if node in nodes), key=lambda n: (len(nodes[n]), n))
        aligned = dict.fromkeys(name for node in wanted for name in nodes[node])
        unaligned = [name for name in free if name not in aligned and self.devices[name].nodes]
        anywhere = [name for name in free if not self.devices[name].nodes]
        return list(aligned), unaligned + anywhere

    def hints(self, nodes: Sequence[int], free: Collection[str], must: Collection[str], need: int) -> list[Hint]:
        """Return the sets of NUMA nodes that can provide so many devices, always including `must`."""

        def near(name: str, mask: int) -> bool:
            return bool(mask_of(self.devices[name].nodes) & mask) if name in self.devices else False

        found, least = [], len(nodes)
        for mask in masks(nodes):
            if sum(near(name, mask) for name in self.devices) >= need:
                least = min(least, mask.bit_count())
            fixed = [name for name in must if name in self.devices and self.devices[name].nodes]
            if not all(near(name, mask) for name in fixed):
                continue
            if len(fixed) + sum(near(name, mask) for name in set(free) - set(must)) >= need:
                found.append(mask)
        return [Hint(mask, mask.bit_count() == least) for mask in found]
