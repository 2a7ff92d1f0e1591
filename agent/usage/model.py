"""Resource usage at one moment. Times are seconds since the epoch, sizes bytes, CPU nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CPU:
    """Time used since the start; `nano_cores`: the rate since the last sample, None at the first."""

    time: float
    total: int
    nano_cores: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """`available`: the limit less the working set, None without a limit."""

    time: float
    working_set: int
    usage: int = 0
    rss: int = 0
    available: int | None = None
    page_faults: int = 0
    major_page_faults: int = 0


@dataclass(frozen=True, slots=True)
class Interface:
    """Counters since an interface was made."""

    name: str
    rx_bytes: int
    rx_errors: int
    tx_bytes: int
    tx_errors: int


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A file system, and how much of it is used by what is being described."""

    time: float
    capacity: int
    available: int
    used: int
    inodes: int
    inodes_free: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """One running container."""

    name: str
    container_id: str
    image: str
    started_at: float
    cpu: CPU
    memory: Memory
    memory_limit: int
    rootfs_used: int
    rootfs_inodes: int
    logs_used: int
    logs_inodes: int


@dataclass(frozen=True, slots=True)
class PersistentUse:
    """A volume that is not the pod's own: the pod's name for it, and the claim (namespace, name) where it has one."""

    name: str
    claim: tuple[str, str] | None
    filesystem: Filesystem


@dataclass(frozen=True, slots=True)
class PodUse:
    """One pod, its sandbox included."""

    name: str
    namespace: str
    uid: str
    started_at: float
    containers: tuple[ContainerUse, ...]
    cpu: CPU | None
    memory: Memory | None
    interfaces: tuple[Interface, ...]
    processes: int
    volumes: tuple[tuple[str, Filesystem], ...]
    persistent: tuple[PersistentUse, ...] = ()
    """Usage of volumes outside the node's own disk, or that outlive the pod: no part of its local storage."""
    files: tuple[int, int] = (0, 0)
    """Bytes and inodes of /etc/hosts and the termination messages, which containers write to on the node's own disk."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The machine."""

    name: str
    started_at: float
    cpu: CPU
    memory: Memory
    interfaces: tuple[Interface, ...]
    filesystem: Filesystem
    image_filesystem: Filesystem
    pids: int
    max_pids: int
    pods_cpu: CPU | None = None
    pods_memory: Memory | None = None
    """Usage of all pods together, from their common cgroup."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, at about the same moment."""

    node: NodeUse
    pods: tuple[PodUse, ...]
    ending: tuple[PodUse, ...] = ()
    """Disk usage of pods that have no sandbox any more and whose volumes are not removed yet."""
