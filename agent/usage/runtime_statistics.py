"""Statistics of the runtime (CRI) as the usage of containers and pods, and their sums."""

from __future__ import annotations

from agent.usage.model import CPU, ContainerUse, Interface, Memory
from cri.messages import CpuUsage, MemoryUsage, NetworkUsage

_ADDED_UP = ("working_set", "usage", "rss", "page_faults", "major_page_faults")


def cpu_of(usage: CpuUsage) -> CPU:
    """Return the CPU time that the runtime has measured."""
    return CPU(usage.timestamp / 1e9, usage.usage_core_nano_seconds.value)


def memory_of(usage: MemoryUsage, limit: int) -> Memory:
    """Return the memory that the runtime has measured, of a container or pod with a limit in bytes, 0 for none."""
    working_set = usage.working_set_bytes.value
    return Memory(
        usage.timestamp / 1e9,
        working_set,
        usage=usage.usage_bytes.value,
        rss=usage.rss_bytes.value,
        available=max(0, limit - working_set) if limit else None,
        page_faults=usage.page_faults.value,
        major_page_faults=usage.major_page_faults.value,
    )


def sum_cpu(containers: list[ContainerUse]) -> CPU | None:
    """Add up the CPU time of containers; None if there are none."""
    if not containers:
        return None
    rates = [c.cpu.nano_cores for c in containers if c.cpu.nano_cores is not None]
    total = sum(c.cpu.total for c in containers)
    return CPU(max(c.cpu.time for c in containers), total, sum(rates) if rates else None)


def sum_memory(containers: list[ContainerUse]) -> Memory | None:
    """Add up the memory of containers; None if there are none."""
    if not containers:
        return None
    sums = {name: sum(getattr(c.memory, name) for c in containers) for name in _ADDED_UP}
    return Memory(max(c.memory.time for c in containers), **sums)


def interfaces_of(network: NetworkUsage) -> tuple[Interface, ...]:
    """Return the network interfaces of a pod, the default one first."""
    found = [network.default_interface] if network.HasField("default_interface") else []
    return tuple(
        Interface(one.name, one.rx_bytes.value, one.rx_errors.value, one.tx_bytes.value, one.tx_errors.value)
        for one in [*found, *network.interfaces]
    )
