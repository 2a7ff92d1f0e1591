"""Node IPAM: a pod range for every node, cut from the cluster's range.

The lowest free range is given; a node that has one keeps it. Upstream: pkg/controller/nodeipam (RangeAllocator).
"""

from __future__ import annotations

import ipaddress

from control.controllers.context import Context
from kube.api import core_v1
from kube.controller import Controller
from kube.informer import Change
from kube.ip_addresses import lenient_cidr
from kube.object_names import name_of

AGAIN_SECONDS = 60.0
"""Seconds until a node without a range is checked again, if no range is released before."""
MOST_BLOCKS = 2**16
"""Maximum number of blocks of a range that are assigned, from its start: each assigned block is kept in memory."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RangeFull(Exception):
    """No range is left."""


class Ranges:
    """The blocks of one network, and which are taken."""

    def __init__(self, cluster: str, mask: int) -> None:
        self.network: Network = ipaddress.ip_network(cluster)
        if not self.network.prefixlen <= mask <= self.network.max_prefixlen:
            raise ValueError(f"node mask /{mask} does not lie within {cluster}")
        self._mask = mask
        self._count = min(2 ** (mask - self.network.prefixlen), MOST_BLOCKS)
        self._size = 2 ** (self.network.max_prefixlen - mask)
        self._taken: dict[int, set[str]] = {}
        """By block: the nodes that have it. A Node may be made with any range, also with one that others have."""
        self._next = 0

    def take(self, node: str) -> str:
        """Return a free block for a node; RangeFull where there is none. Blocks given back are the last to be given again."""
        for step in range(self._count):
            index = (self._next + step) % self._count
            if index not in self._taken:
                self._taken[index] = {node}
                self._next = index + 1
                return str(self._block(index))
        raise RangeFull

    def mark(self, block: str, node: str) -> None:
        """Mark a block as used by a node; blocks outside of the range are ignored."""
        for index in self._indexes(block):
            self._taken.setdefault(index, set()).add(node)

    def give_back(self, block: str, node: str) -> None:
        """Free a block that a node had, unless another one has it, too."""
        for index in self._indexes(block):
            owners = self._taken.get(index, set())
            owners.discard(node)
            if not owners:
                self._taken.pop(index, None)

    def _block(self, index: int) -> Network:
        start = int(self.network.network_address) + index * self._size
        return ipaddress.ip_network((start, self._mask))

    def _indexes(self, block: str) -> range:
        try:
            found = lenient_cidr(block).network
        except ValueError:
            return range(0)
        if found.version != self.network.version or not self.network.overlaps(found):
            return range(0)
        offset = int(found.network_address) - int(self.network.network_address)
        first = max(0, offset // self._size)
        last = min(self._count - 1, (offset + found.num_addresses - 1) // self._size)
        return range(first, last + 1)


class NodeIPAMController:
    """Follows nodes."""

    def __init__(self, context: Context, cluster_cidr: str, mask: int) -> None:
        self._client = context.client
        self._recorder = context.recorder("cidrAllocator")
        self._ranges = [
            Ranges(cidr, mask if ":" not in cidr else max(mask, 64)) for cidr in cluster_cidr.split(",") if cidr
        ]
        self._promised: dict[str, list[str]] = {}
        self._waiting: set[str] = set()
        """Nodes without a range whose event was emitted."""
        self._nodes = context.informers.of(core_v1.Node)
        self.controller = Controller(
            "node IPAM", self.reconcile, workers=4, queue="cidrallocator_node", clock=context.clock
        )
        self._nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        blocks = change.new.spec.pod_cidrs or ([change.new.spec.pod_cidr] if change.new.spec.pod_cidr else [])
        if change.type == "DELETED":
            for block in {*blocks, *self._promised.pop(change.key, [])}:
                for ranges in self._ranges:
                    ranges.give_back(block, change.key)
            self._waiting.discard(change.key)
            for key in self._waiting:
                self.controller.enqueue(key)
            return
        for block in blocks:
            for ranges in self._ranges:
                ranges.mark(block, change.key)
        if blocks:
            self._promised.pop(change.key, None)
        self.controller.enqueue(change.key)

    async def reconcile(self, key: str) -> float | None:
        """Give a node its range, where it has none; come back later where none is left."""
        node = self._nodes.get(key)
        if node is None or node.spec.pod_cidr or node.metadata.deletion_timestamp is not None:
            self._waiting.discard(key)
            return None
        if key not in self._promised:
            taken: list[str] = []
            try:
                for ranges in self._ranges:
                    taken.append(ranges.take(key))
            except RangeFull:
                for ranges, block in zip(self._ranges, taken, strict=False):
                    ranges.give_back(block, key)
                if key not in self._waiting:
                    self._waiting.add(key)
                    message = f"Node {key} status is now: CIDRNotAvailable"
                    self._recorder.event(node, "Normal", "CIDRNotAvailable", message)
                return AGAIN_SECONDS
            self._promised[key] = taken
        self._waiting.discard(key)
        blocks = self._promised[key]
        await self._client.patch(core_v1.Node, name_of(node), "", {"spec": {"podCIDR": blocks[0], "podCIDRs": blocks}})
        return None
