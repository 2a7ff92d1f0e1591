"""The memory manager: with the Static policy, guaranteed pods are allocated memory and huge pages of NUMA nodes.

An allocation from several nodes makes them a group. Until it is released, no container may be allocated memory from only one
of these nodes, nor from another group that shares one, because the allocation might then not be satisfied
(pkg/kubelet/cm/memorymanager/policy_static.go). The allocation of an init container is reused by the containers after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from agent.cgroups import qos
from agent.managers import memory_state
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.errors import AdmissionError
from agent.managers.hardware import MEMORY, Hardware
from agent.managers.hints import Hint, Hints, mask_of, masks, nodes_of
from agent.managers.memory_state import Block, MemoryState, NUMANodeState, Table
from agent.managers.reusable_memory import NOTHING, ReusableMemory
from agent.managers.state_files import StateError
from kube.api import core_v1
from kube.quantity import value

Reserved = Mapping[int, Mapping[str, int]]
"""Bytes by NUMA node and kind of memory that pods do not get."""


class MemoryManager:
    """Static policy of one machine; with policy None nothing is allocated."""

    def __init__(self, machine: Hardware, root: Path, policy: str, reserved: Reserved) -> None:
        """Load the state file below `root`. Raise StateError."""
        self._machine, self._root, self.policy = machine, root, policy
        self._reserved = reserved
        self._reusable: dict[str, ReusableMemory] = {}
        """By pod UID."""
        fresh = MemoryState(policy_name=policy)
        if policy == "Static":
            fresh.machine_state = self._empty()
        self._state = memory_state.load(root, policy) or fresh
        if policy == "Static":
            self._check()
        self.checkpoint = CheckpointWriter(memory_state.FILE, self._prepared)
        self.checkpoint.save_at_start()

    def _prepared(self) -> Callable[[], None]:
        return partial(memory_state.write, self._root, memory_state.encode(self._state))

    def _empty(self) -> dict[int, NUMANodeState]:
        found = {}
        for node in self._machine.nodes:
            reserved = self._reserved.get(node.id, {})
            totals = {MEMORY: node.memory, **node.huge_pages}
            tables = {}
            for kind, total in totals.items():
                free = total - reserved.get(kind, 0) - (sum(node.huge_pages.values()) if kind == MEMORY else 0)
                tables[kind] = Table(
                    total=total, system_reserved=reserved.get(kind, 0), allocatable=max(free, 0), free=max(free, 0)
                )
            found[node.id] = NUMANodeState(memory_map=tables, cells=[node.id])
        return found

    def _check(self) -> None:
        """Check the state against the machine, whose memory or reservations may have changed."""
        now = self._empty()
        same = now.keys() == self._state.machine_state.keys() and all(
            tables.keys() == now[node].memory_map.keys()
            and all(
                (t.total, t.system_reserved) == (now[node].memory_map[k].total, now[node].memory_map[k].system_reserved)
                for k, t in tables.items()
            )
            for node, tables in ((n, s.memory_map) for n, s in self._state.machine_state.items())
        )
        if not same:
            raise StateError(
                "[memorymanager] the expected machine state is different from the real one; please drain this node "
                f"and remove the memory manager state file {self._root / memory_state.FILE}"
            )
        self._state.machine_state = now
        for containers in self._state.entries.values():
            for blocks in containers.values():
                for block in blocks:
                    self._move(block, block.size)
                self._assign(blocks)

    # -- requests ------------------------------------------------------------------------------------------------
    def wanted(self, pod: core_v1.Pod, container: core_v1.Container) -> dict[str, int]:
        """Return the bytes to allocate to the container, by kind; empty for most containers."""
        if self.policy != "Static" or qos.qos_class(pod) != qos.GUARANTEED:
            return {}
        if pod.spec.resources is not None and (pod.spec.resources.limits or pod.spec.resources.requests):
            return {}
        requests = qos.requests(container.resources)
        return {
            kind: amount
            for kind in requests
            if (kind == MEMORY or kind.startswith("hugepages-")) and (amount := value(requests[kind]))
        }

    def _pod_wanted(self, pod: core_v1.Pod) -> dict[str, int]:
        kinds = {kind for c in (*pod.spec.init_containers, *pod.spec.containers) for kind in self.wanted(pod, c)}
        requests = qos.pod_requests(pod) if kinds else {}
        return {kind: requests.get(kind, 0) for kind in kinds}

    def nodes(self, uid: str, container: str) -> tuple[int, ...]:
        """Return the nodes from which a container was allocated memory."""
        blocks = self._state.entries.get(uid, {}).get(container, [])
        return tuple(sorted({node for block in blocks for node in block.numa_affinity}))

    def blocks(self, uid: str, container: str) -> list[Block]:
        """Return the blocks allocated to a container."""
        return self._state.entries.get(uid, {}).get(container, [])

    def allocatable(self) -> list[Block]:
        """Return the allocatable bytes, by node and kind."""
        return [
            Block(numa_affinity=[node], type=kind, size=table.allocatable)
            for node, state in sorted(self._state.machine_state.items())
            for kind, table in state.memory_map.items()
            if table.allocatable
        ]

    # -- hints --------------------------------------------------------------------------------------------------------
    def pod_hints(self, pod: core_v1.Pod) -> Hints:
        """Return hints for the whole pod's memory."""
        wanted = self._pod_wanted(pod)
        own = self._state.entries.get(pod.metadata.uid or "")
        if not wanted or own:
            return {} if not own else _own_hints([b for blocks in own.values() for b in blocks])
        return self._hints(wanted, NOTHING)

    def container_hints(self, pod: core_v1.Pod, container: core_v1.Container) -> Hints:
        """Return hints for a container's memory."""
        wanted, uid = self.wanted(pod, container), pod.metadata.uid or ""
        if not wanted:
            return {}
        if own := self.blocks(uid, container.name):
            return _own_hints(own)
        return self._hints(wanted, self._reusable.get(uid, NOTHING))

    def _hints(self, wanted: Mapping[str, int], reusable: ReusableMemory) -> dict[str, list[Hint]]:
        found, least = [], len(self._machine.nodes)
        for mask in masks(self._machine.node_ids):
            if not self._fits(mask, wanted, "allocatable", {}) or not self._groups_allow(mask, several=True):
                continue
            least = min(least, mask.bit_count())
            if self._groups_allow(mask) and self._fits(mask, wanted, "free", reusable.on(mask)):
                found.append(mask)
        return {kind: [Hint(mask, mask.bit_count() == least) for mask in found] for kind in wanted}

    def _fits(self, mask: int, wanted: Mapping[str, int], column: str, reusable: Mapping[str, int]) -> bool:
        states = self._state.machine_state
        return all(
            sum(getattr(states[n].memory_map.get(kind, Table()), column) for n in nodes_of(mask))
            + reusable.get(kind, 0)
            >= amount
            for kind, amount in wanted.items()
        )

    def _groups_allow(self, mask: int, *, several: bool = False) -> bool:
        """Return whether a set of nodes does not cut across a group; `several` checks sets of several nodes only."""
        nodes = nodes_of(mask)
        if len(nodes) == 1:
            return several or len(self._state.machine_state[nodes[0]].cells) <= 1
        states = (self._state.machine_state[node] for node in nodes)
        return all(not s.number_of_assignments or tuple(sorted(s.cells)) == nodes for s in states)

    # -- giving and taking back ---------------------------------------------------------------------------------------
    async def allocate(self, pod: core_v1.Pod, container: core_v1.Container, hint: Hint, *, reused: bool) -> None:
        """Allocate a container its memory from the hint's nodes, or from as few others as possible. Raise AdmissionError."""
        wanted, uid = self.wanted(pod, container), pod.metadata.uid or ""
        if not wanted or self.blocks(uid, container.name):
            return
        reusable = self._reusable.get(uid, NOTHING)
        affinity = self._satisfying(hint.affinity, wanted, reusable)
        if reused:
            reusable = self._reusable.setdefault(uid, ReusableMemory())
        nodes = list(nodes_of(affinity))
        blocks = [Block(numa_affinity=nodes, type=kind, size=wanted[kind]) for kind in sorted(wanted)]
        for block in blocks:
            again = reusable.take(affinity, block.type, block.size)
            self._move(block, block.size - again)
            if reused:
                reusable.leave(affinity, block)
        self._state.entries.setdefault(uid, {})[container.name] = blocks
        self._assign(blocks)
        self.checkpoint.mark()

    async def save(self) -> None:
        """Write what was given; without it the next agent allocates the memory anew."""
        await self.checkpoint.try_save_marked()

    def _assign(self, blocks: Sequence[Block]) -> None:
        """Count the blocks of a container at their nodes, which become a group if they are several."""
        for block in blocks:
            for node in block.numa_affinity:
                state = self._state.machine_state[node]
                state.number_of_assignments += 1
                state.cells = list(block.numa_affinity)

    def _satisfying(self, affinity: int | None, wanted: Mapping[str, int], reusable: ReusableMemory) -> int:
        """Return nodes with enough free memory: the affinity, or the smallest set that contains it."""
        usable_hints = next(iter(self._hints(wanted, reusable).values()), [])
        usable = [
            h
            for h in usable_hints
            if h.affinity is not None and (affinity is None or h.affinity & affinity == affinity)
        ]
        if not usable:
            raise AdmissionError(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            )
        best = min(usable, key=lambda h: (not h.preferred, (h.affinity or 0).bit_count(), h.affinity))
        return best.affinity or 0

    def _move(self, block: Block, amount: int) -> None:
        """Take bytes from the free memory of a block's nodes, in their order; give them back where negative."""
        for node in block.numa_affinity:
            table = self._state.machine_state[node].memory_map[block.type]
            part = min(table.free, amount) if amount > 0 else max(-table.reserved, amount)
            table.free, table.reserved, amount = table.free - part, table.reserved + part, amount - part

    async def release(self, uid: str) -> None:
        """Release the memory of a pod."""
        self._reusable.pop(uid, None)
        given = self._state.entries.pop(uid, None)
        if given is None:
            return
        for blocks in given.values():
            for block in blocks:
                self._move(block, -block.size)
                for node in block.numa_affinity:
                    state = self._state.machine_state[node]
                    state.number_of_assignments = max(state.number_of_assignments - 1, 0)
                    if not state.number_of_assignments:
                        state.cells = [node]
        self.checkpoint.mark()
        await self.checkpoint.try_save_marked()

    @property
    def owners(self) -> set[str]:
        """The UIDs of the pods with allocations."""
        return set(self._state.entries)


def _own_hints(blocks: list[Block]) -> dict[str, list[Hint]]:
    """Return the hint for a container that has an allocation already: its nodes."""
    return {block.type: [Hint(mask_of(block.numa_affinity), True)] for block in blocks}
