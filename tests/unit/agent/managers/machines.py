"""Machines for tests: sysfs trees with sockets, NUMA nodes, cores and threads as a test likes them."""

from __future__ import annotations

from pathlib import Path

from agent.managers import hardware
from agent.managers.hardware import Hardware

GIB = 1 << 30


def sysfs(
    root: Path,
    *,
    sockets: int = 1,
    nodes: int = 1,
    cores: int = 2,
    threads: int = 1,
    cache: int = 0,
    memory: int = GIB,
    huge: int = 0,
) -> Path:
    """Write a tree with `nodes` NUMA nodes in all, each of `cores`; `huge` pages of 2 MiB a node; `cache` cores share one.

    Numbered as Linux does on such machines: first one thread of every core, then the second ones.
    """
    system = root / "devices/system"
    total = nodes * cores
    _write(system / "cpu/online", f"0-{total * threads - 1}")
    for core in range(total):
        node = core // cores
        ids = [core + thread * total for thread in range(threads)]
        for cpu in ids:
            topology = system / f"cpu/cpu{cpu}/topology"
            _write(topology / "core_id", str(core % cores))
            _write(topology / "physical_package_id", str(node * sockets // nodes))
            _write(topology / "thread_siblings_list", ",".join(map(str, ids)))
            if cache:
                first = core // cache * cache
                shared = [c + t * total for c in range(first, first + cache) for t in range(threads)]
                _write(system / f"cpu/cpu{cpu}/cache/index3/shared_cpu_list", ",".join(map(str, shared)))
    for node in range(nodes):
        folder = system / f"node/node{node}"
        mine = [c + t * total for c in range(node * cores, (node + 1) * cores) for t in range(threads)]
        _write(folder / "cpulist", ",".join(map(str, mine)))
        _write(folder / "meminfo", f"Node {node} MemTotal:       {memory // 1024} kB\nNode {node} MemFree:  1 kB")
        _write(folder / "distance", " ".join("10" if other == node else "20" for other in range(nodes)))
        _write(folder / "hugepages/hugepages-2048kB/nr_hugepages", str(huge))
    return root


def machine(root: Path, **shape: int) -> Hardware:
    """Read back what `sysfs` writes."""
    return hardware.read(sysfs(root, **shape), Path("/dev/null"))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")
