"""Chooses the processors of a container: whole sockets and NUMA nodes, then cores, then threads (cpu_assignment.go).

Packed: fills up what is partly used first, so that large free parts remain. Distributed over NUMA nodes: as few nodes as can
hold the request, the same number from each. Pure.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping

from agent.managers.cpuset import CPUSet
from agent.managers.errors import AdmissionError
from agent.managers.hardware import Hardware


def _short(wanted: int, available: int) -> AdmissionError:
    return AdmissionError(f"not enough cpus available to satisfy request: requested={wanted}, available={available}")


def packed(machine: Hardware, available: CPUSet, count: int, *, by_cache: bool = False) -> CPUSet:
    """Take `count` of the available processors, close together, sharing few caches `by_cache`. Raise AdmissionError."""
    if len(available) < count:
        raise _short(count, len(available))
    accumulator = _Accumulator(machine, available, count)
    # Of sockets and NUMA nodes the fewer are the larger units. One is taken whole only where all of it is free and wanted.
    for level in sorted((machine.sockets, machine.node_cpus), key=len):
        accumulator.take_whole(level)
    if by_cache:
        accumulator.take_whole(machine.caches)
        accumulator.stay_in_one(machine.caches)
    accumulator.take_whole(machine.cores)
    accumulator.take_rest()
    return accumulator.taken


class _Accumulator:
    def __init__(self, machine: Hardware, available: CPUSet, count: int) -> None:
        self.machine, self.free, self.needed = machine, available, count
        self.taken: CPUSet = frozenset()

    def _take(self, cpus: CPUSet) -> None:
        self.taken |= cpus
        self.free -= cpus
        self.needed -= len(cpus)

    def take_whole(self, units: Mapping[int, CPUSet]) -> None:
        whole = [unit for unit, cpus in units.items() if cpus and cpus <= self.free]
        for unit in sorted(whole, key=lambda u: self._place(min(units[u]))):
            if len(units[unit]) <= self.needed:
                self._take(units[unit])

    def stay_in_one(self, units: Mapping[int, CPUSet]) -> None:
        """Leave only one unit to take the rest from, where one has enough: the fullest of them."""
        enough = [cpus & self.free for cpus in units.values() if len(cpus & self.free) >= self.needed]
        if self.needed and enough:
            self.free = min(enough, key=lambda free: (len(free), min(free)))

    def take_rest(self) -> None:
        for cpu in sorted(self.free, key=self._place):
            if self.needed == 0:
                return
            self._take(frozenset({cpu}))

    def _place(self, cpu: int) -> tuple[int, ...]:
        """Order by how much is free around a processor: the fullest socket, node and core first."""
        at, machine = self.machine.by_id[cpu], self.machine
        large = sorted(((machine.sockets, at.socket), (machine.node_cpus, at.node)), key=lambda level: len(level[0]))
        key: list[int] = []
        for units, unit in (*large, (machine.cores, at.core)):
            key += [len(units[unit] & self.free), unit]
        return (*key, cpu)


def distributed(machine: Hardware, available: CPUSet, count: int, group: int) -> CPUSet:
    """Take `count` processors evenly from the fewest NUMA nodes that can hold them, `group` at a time.

    Raise AdmissionError. Where they cannot be distributed evenly they are packed.
    """
    if len(available) < count:
        raise _short(count, len(available))
    if count % group:
        return packed(machine, available, count)
    free = {node: machine.node_cpus[node] & available for node in machine.node_ids}
    for size in range(1, len(free) + 1):
        share = count // size // group * group
        found = [
            nodes
            for nodes in itertools.combinations(sorted(free), size)
            if share and all(len(free[n]) >= share for n in nodes) and sum(len(free[n]) for n in nodes) >= count
        ]
        best: tuple[float, CPUSet] | None = None
        for nodes in found:
            taken = _evenly(machine, free, nodes, count, share, group)
            if taken is None:
                continue
            left = [len(free[node] - taken) for node in free]
            balance = statistics.pstdev(left)
            if best is None or balance < best[0]:
                best = (balance, taken)
        if best is not None:
            return best[1]
    return packed(machine, available, count)


def _evenly(
    machine: Hardware, free: Mapping[int, CPUSet], nodes: tuple[int, ...], count: int, share: int, group: int
) -> CPUSet | None:
    """Take a share from each node and what is left over in groups from those with the most free; None if that fails."""
    amounts = dict.fromkeys(nodes, share)
    left = count - share * len(nodes)
    while left:
        node = max(nodes, key=lambda n: (len(free[n]) - amounts[n], -n))
        step = min(group, left)
        if len(free[node]) - amounts[node] < step:
            return None
        amounts[node] += step
        left -= step
    taken: CPUSet = frozenset()
    for node, amount in amounts.items():
        taken |= packed(machine, free[node], amount)
    return taken
