"""The machine's processors and memory, read from sysfs: threads, cores, sockets, NUMA nodes, huge pages, distances.

Everything is read once at the start, from a root that tests fabricate. A kernel without NUMA shows no node directories; the
machine is one node 0 then, with all processors and all memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from agent.managers.cpuset import CPUSet, parse

MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Cpu:
    """The location of one processor (hardware thread); core and cache are named by the lowest processor in them."""

    id: int
    core: int
    socket: int
    node: int
    cache: int = 0
    """The last-level cache that it shares with others."""


@dataclass(frozen=True, slots=True)
class NUMANode:
    """One NUMA node; memory in bytes, huge pages in bytes by resource name (hugepages-2Mi)."""

    id: int
    memory: int = 0
    huge_pages: dict[str, int] = field(default_factory=dict)
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hardware:
    """The whole machine."""

    cpus: tuple[Cpu, ...]
    nodes: tuple[NUMANode, ...]

    @cached_property
    def all(self) -> CPUSet:
        return frozenset(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> dict[int, Cpu]:
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(sorted(node.id for node in self.nodes))

    @cached_property
    def sockets(self) -> dict[int, CPUSet]:
        return self._grouped("socket")

    @cached_property
    def cores(self) -> dict[int, CPUSet]:
        return self._grouped("core")

    @cached_property
    def caches(self) -> dict[int, CPUSet]:
        return self._grouped("cache")

    @cached_property
    def node_cpus(self) -> dict[int, CPUSet]:
        return {node: frozenset() for node in self.node_ids} | self._grouped("node")

    @property
    def threads_per_core(self) -> int:
        return len(self.cpus) // max(len(self.cores), 1) or 1

    def in_nodes(self, mask: int) -> CPUSet:
        """Return the processors of the nodes in a bit mask."""
        return frozenset(cpu.id for cpu in self.cpus if mask >> cpu.node & 1)

    def of(self, attribute: str, ids: Iterable[int]) -> CPUSet:
        """Return the processors whose core, socket or node is among these."""
        wanted = set(ids)
        return frozenset(cpu.id for cpu in self.cpus if getattr(cpu, attribute) in wanted)

    def _grouped(self, attribute: str) -> dict[int, CPUSet]:
        groups: dict[int, set[int]] = {}
        for cpu in self.cpus:
            groups.setdefault(getattr(cpu, attribute), set()).add(cpu.id)
        return {key: frozenset(found) for key, found in sorted(groups.items())}


def read(sys: Path = Path("/sys"), meminfo: Path = Path("/proc/meminfo")) -> Hardware:
    """Read the machine from sysfs. Raise OSError or ValueError if it is incomplete."""
    system = sys / "devices/system"
    online = parse((system / "cpu/online").read_text())
    folders = sorted((system / "node").glob("node[0-9]*"), key=lambda f: int(f.name[4:]))
    node_of = {cpu: int(f.name[4:]) for f in folders for cpu in parse((f / "cpulist").read_text())}
    cpus = tuple(_cpu(system / f"cpu/cpu{number}", number, node_of.get(number, 0)) for number in sorted(online))
    if not folders:
        return Hardware(cpus, (NUMANode(0, _total(meminfo), _huge_pages(sys / "kernel/mm/hugepages")),))
    nodes = tuple(
        NUMANode(
            int(folder.name[4:]),
            _total(folder / "meminfo"),
            _huge_pages(folder / "hugepages"),
            tuple(map(int, _text(folder / "distance", "10").split())),
        )
        for folder in folders
    )
    return Hardware(cpus, nodes)


def _cpu(folder: Path, number: int, node: int) -> Cpu:
    siblings = parse(_text(folder / "topology/thread_siblings_list", str(number))) or {number}
    socket = max(int(_text(folder / "topology/physical_package_id", "0")), 0)
    cache = parse(_text(folder / "cache/index3/shared_cpu_list", ""))
    return Cpu(number, min(siblings), socket, node, min(cache, default=-1 - node))


def _total(meminfo: Path) -> int:
    for line in _text(meminfo, "").splitlines():
        words = line.replace(":", " ").split()
        if "MemTotal" in words:
            return int(words[words.index("MemTotal") + 1]) * 1024
    return 0


def _huge_pages(folder: Path) -> dict[str, int]:
    found = {}
    for size in sorted(folder.glob("hugepages-*kB")):
        kilobytes = int(size.name.removeprefix("hugepages-").removesuffix("kB"))
        text = f"{kilobytes // 1048576}Gi" if kilobytes % 1048576 == 0 else f"{kilobytes // 1024}Mi"
        found[f"hugepages-{text}"] = int(_text(size / "nr_hugepages", "0")) * kilobytes * 1024
    return found


def _text(file: Path, default: str) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return default
