"""Collects resource usage: statistics of the runtime (sandbox_statistics.py), /proc, a walk over volumes and logs.

Rates need two samples: each snapshot keeps its CPU times for the next one. A snapshot serves all requests within a second;
volumes and logs are walked at most once a minute, as upstream's volumeStatsAggPeriod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from agent.cgroups.tree import Cgroups
from agent.interfaces import Pods, PodView
from agent.lifecycle import find_container
from agent.usage import cgroup, machine
from agent.usage.model import CPU, ContainerUse, NodeUse, PersistentUse, PodUse, Snapshot
from agent.usage.pod_disk import PodDiskUse, PodDiskWalker
from agent.usage.runtime_statistics import cpu_of, interfaces_of, memory_of, sum_cpu, sum_memory
from agent.usage.sandbox_statistics import SandboxStatistics
from cri.client import Client
from cri.messages import PodSandboxStats
from kube.api import core_v1
from kube.clock import Clock, parse_time
from kube.quantity import value

_FRESH_SECONDS = 1.0
_DISK_SECONDS = 60.0
_RATE_SECONDS = 0.1  # samples closer together than this give no meaningful rate


class Collector:
    """Answers `snapshot()`; `pods_dir` is the agent's folder of pods' volumes, `logs_dir` that of pods' logs."""

    def __init__(
        self,
        client: Client,
        pods: Pods,
        clock: Clock,
        *,
        node_name: str,
        root_dir: Path,
        pods_dir: Path,
        logs_dir: Path,
        persistent: Callable[[core_v1.Pod], Awaitable[tuple[PersistentUse, ...]]] | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._node_name = node_name
        self._root_dir = root_dir
        self._cgroups = cgroups
        self._sandboxes = SandboxStatistics(client, clock)
        self._lock = asyncio.Lock()
        self._last: tuple[float, Snapshot] | None = None
        self._cpu: dict[str, CPU] = {}
        self._disks = PodDiskWalker(pods_dir, logs_dir, clock, persistent)

    async def snapshot(self, disk_seconds: float = _DISK_SECONDS) -> Snapshot:
        """Return usage not older than a second, or `disk_seconds` for what needs a walk over files.

        Raise CRIError when the runtime does not answer.
        """
        async with self._lock:
            now = self._clock.monotonic()
            if self._last is None or now - self._last[0] > _FRESH_SECONDS:
                self._last = now, await self._collect(disk_seconds)
            return self._last[1]

    async def _collect(self, disk_seconds: float) -> Snapshot:
        every = self._pods.views()
        views = {view.sandbox.id: view for view in every if view.sandbox is not None and view.sandbox.ready}
        ending = [
            view.pod
            for view in every
            if view.terminating and not view.released and (view.sandbox is None or not view.sandbox.ready)
        ]
        rates: dict[str, CPU] = {}
        pods = []
        found = await self._sandboxes.read(tuple(views))
        disks = await self._disks.measure([*(view.pod for view in views.values()), *ending], disk_seconds)
        for stats in found:
            view = views.get(stats.attributes.id)
            if view is not None:
                pods.append(self._pod(view, stats, disks[view.pod.metadata.uid or ""], rates))
                await asyncio.sleep(0)  # a pod may have thousands of containers
        node = await self._node(rates)
        self._cpu = rates
        return Snapshot(node, tuple(pods), tuple(_ending(pod, disks[pod.metadata.uid or ""]) for pod in ending))

    def _pod(self, view: PodView, stats: PodSandboxStats, disk: PodDiskUse, rates: dict[str, CPU]) -> PodUse:
        metadata, linux = view.pod.metadata, stats.linux
        records = {record.id: record for record in view.containers if record.running}
        containers = []
        for one in linux.containers:
            record = records.get(one.attributes.id)
            if record is not None:
                limit = _memory_limit(view.pod, record.name)
                log_bytes, log_inodes = disk.logs.get(record.name, (0, 0))
                containers.append(
                    ContainerUse(
                        name=record.name,
                        container_id=record.id,
                        image=record.image,
                        started_at=record.started_at,
                        cpu=self._rated(record.id, cpu_of(one.cpu), rates),
                        memory=memory_of(one.memory, limit),
                        memory_limit=limit,
                        rootfs_used=one.writable_layer.used_bytes.value,
                        rootfs_inodes=one.writable_layer.inodes_used.value,
                        logs_used=log_bytes,
                        logs_inodes=log_inodes,
                    )
                )
        started = view.pod.status.start_time
        cpu, memory = (cpu_of(linux.cpu), memory_of(linux.memory, 0)) if linux.HasField("memory") else (None, None)
        processes = linux.process.process_count.value
        if memory is None and self._cgroups is not None:
            # containerd 1.6 cannot read a pod's cgroup that is a slice.
            own = cgroup.read(self._cgroups.fs.mount, self._cgroups.pod_path(view.pod), self._clock.now().timestamp())
            if own is not None:
                cpu, memory, processes = own.cpu, own.memory, own.processes
        return PodUse(
            name=metadata.name or "",
            namespace=metadata.namespace or "",
            uid=metadata.uid or "",
            started_at=parse_time(started).timestamp() if started else 0.0,
            containers=tuple(containers),
            cpu=self._rated(stats.attributes.id, cpu, rates) if cpu is not None else sum_cpu(containers),
            memory=memory or sum_memory(containers),
            interfaces=interfaces_of(linux.network),
            processes=processes,
            volumes=disk.volumes,
            files=disk.files,
            persistent=disk.persistent,
        )

    async def _node(self, rates: dict[str, CPU]) -> NodeUse:
        now = self._clock.now().timestamp()
        images = await self._client.images.image_fs_info()
        used = images[0].used_bytes.value if images else 0
        inodes = images[0].inodes_used.value if images else 0
        mountpoint = Path(images[0].fs_id.mountpoint) if images else self._root_dir
        pids, max_pids = machine.processes()
        pods = cgroup.read(self._cgroups.fs.mount, self._cgroups.kubepods(), now) if self._cgroups is not None else None
        return NodeUse(
            name=self._node_name,
            started_at=machine.boot_time(),
            cpu=self._rated("", machine.cpu(now), rates),
            memory=machine.memory(now),
            interfaces=machine.interfaces(),
            filesystem=machine.filesystem(now, self._root_dir),
            image_filesystem=machine.filesystem(now, mountpoint, used, inodes),
            pids=pids,
            max_pids=max_pids,
            pods_cpu=self._rated("pods", pods.cpu, rates) if pods is not None else None,
            pods_memory=pods.memory if pods is not None else None,
        )

    def _rated(self, key: str, cpu: CPU, rates: dict[str, CPU]) -> CPU:
        before = self._cpu.get(key)
        elapsed = cpu.time - before.time if before is not None else 0.0
        if before is None:
            rates[key] = cpu
        elif 0.0 <= elapsed < _RATE_SECONDS:
            rates[key] = before
            return replace(cpu, nano_cores=before.nano_cores)
        elif elapsed < 0.0:  # the clock was set back
            rates[key] = replace(cpu, nano_cores=before.nano_cores)
        else:
            rates[key] = replace(cpu, nano_cores=int(max(0, cpu.total - before.total) / elapsed))
        return rates[key]


def _ending(pod: core_v1.Pod, disk: PodDiskUse) -> PodUse:
    """Return the usage of a pod of which nothing runs."""
    metadata = pod.metadata
    return PodUse(
        name=metadata.name or "",
        namespace=metadata.namespace or "",
        uid=metadata.uid or "",
        started_at=0.0,
        containers=(),
        cpu=None,
        memory=None,
        interfaces=(),
        processes=0,
        volumes=disk.volumes,
        files=disk.files,
    )


def _memory_limit(pod: core_v1.Pod, name: str) -> int:
    found = find_container(pod, name)
    resources = found[0].resources if found is not None else None
    return value(resources.limits.get("memory", 0)) if resources is not None else 0
