"""Eviction: when memory or disk runs low, pods go before the kernel has to choose.

Every 10 s the signals are read and compared with their hard thresholds. A signal below its threshold is a node pressure
(a condition, from which the control plane makes a taint), and one pod a round is evicted: first those that use more than they
requested, then by priority, then by how much more (pkg/kubelet/eviction/helpers.go). A pressure lasts until the signal has been
good for the transition period. Also here: emptyDir volumes that outgrew their sizeLimit. Decisions are pure.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent import qos
from agent.contracts import PodView
from agent.lifecycle import End
from agent.machine import available_memory
from agent.node_status import threshold
from agent.pods import PodManager
from agent.records import POD_UID
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.clock import Clock
from kube.quantity import render, value

log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
_CONDITIONS = {
    "memory.available": "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "imagefs.inodesFree": "DiskPressure",
    "pid.available": "PIDPressure",
}
_RESOURCES = {"memory.available": "memory", "pid.available": "pids"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal's amount now, and of how much."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod uses of the resource that is short, and what it requested."""

    view: PodView
    used: int
    requested: int


def breached(readings: Mapping[str, Reading], hard: Mapping[str, str]) -> list[str]:
    """Return the signals that are below their threshold, memory first."""
    found = [
        signal
        for signal, reading in readings.items()
        if signal in hard and reading.available < threshold(hard[signal], reading.capacity)
    ]
    return sorted(found, key=lambda signal: (not signal.startswith("memory"), signal))


def rank(usages: Sequence[Usage]) -> list[Usage]:
    """Order pods, the first to be evicted first; critical ones are never in it."""
    candidates = [u for u in usages if not qos.is_critical(u.view.pod) and not u.view.terminating]
    return sorted(
        candidates,
        key=lambda u: (u.used <= u.requested, u.view.pod.spec.priority or 0, -(u.used - u.requested)),
    )


def eviction(signal: str, reading: Reading, hard: Mapping[str, str], usage: Usage) -> End:
    """Return how an evicted pod ends, in upstream's words."""
    resource = _RESOURCES.get(signal, "ephemeral-storage")
    limit = threshold(hard[signal], reading.capacity)
    message = (
        f"The node was low on resource: {resource}. Threshold quantity: {_show(limit)}, "
        f"available: {_show(reading.available)}. "
    )
    if usage.used > usage.requested:
        names = ", ".join(c.name for c in usage.view.pod.spec.containers)
        message += f"Container {names} was using {_show(usage.used)}, request is {_show(usage.requested)}, "
        message += f"has larger consumption of {resource}. "
    return End("Failed", "Evicted", message)


def _show(amount: int) -> str:
    return render(max(amount, 0) // 1024 * 1024, "binary")


class Eviction:
    """Watches the node's signals. `pressures` are what the node object shows."""

    def __init__(
        self,
        pods: PodManager,
        runtime: RuntimeService,
        root_dir: Path,
        hard: Mapping[str, str],
        transition: float,
        changed: Callable[[], None],
        *,
        clock: Clock,
        memory_capacity: int,
    ) -> None:
        self._pods, self._runtime, self._root_dir, self._hard = pods, runtime, root_dir, hard
        self._transition, self._changed, self._clock = transition, changed, clock
        self._memory_capacity = memory_capacity
        self._last_bad: dict[str, float] = {}
        self.read: Callable[[], Mapping[str, Reading]] = self._read

    def pressures(self) -> Mapping[str, bool]:
        """Return the conditions that hold: a signal was bad within the transition period."""
        now = self._clock.monotonic()
        return {condition: now - at < self._transition for condition, at in self._last_bad.items()}

    async def run(self) -> None:
        """Look every 10 s until cancelled."""
        while True:
            await self._clock.sleep(PERIOD_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Look at the signals once and evict one pod where one is bad."""
        before = self.pressures()
        readings = await asyncio.to_thread(self.read)
        bad = breached(readings, self._hard)
        for signal in bad:
            self._last_bad[_CONDITIONS[signal]] = self._clock.monotonic()
        if self.pressures() != before:
            self._changed()
        if bad:
            await self._evict(bad[0], readings[bad[0]])
        await self._check_empty_dirs()

    async def _evict(self, signal: str, reading: Reading) -> None:
        usages = await self._usages(_RESOURCES.get(signal, "ephemeral-storage"))
        ranked = rank(usages)
        if not ranked:
            log.warning("%s is low and there is no pod to evict", signal)
            return
        end = eviction(signal, reading, self._hard, ranked[0])
        metadata = ranked[0].view.pod.metadata
        log.warning("evicting pod %s/%s: %s", metadata.namespace, metadata.name, end.message)
        self._pods.evict(metadata.uid or "", end)

    async def _usages(self, resource: str) -> list[Usage]:
        used: dict[str, int] = {}
        try:
            for stats in await self._runtime.list_container_stats():
                uid = stats.attributes.labels.get(POD_UID, "")
                amount = stats.memory.working_set_bytes if resource == "memory" else stats.writable_layer.used_bytes
                used[uid] = used.get(uid, 0) + amount.value
        except CRIError as error:
            log.warning("reading container statistics: %s", error)
        return [
            Usage(view, used.get(uid, 0), qos.pod_request(view.pod, resource))
            for uid, view in self._pods.by_uid().items()
            if view.alive
        ]

    async def _check_empty_dirs(self) -> None:
        """Evict pods whose emptyDir volumes are larger than they may be."""
        for uid, view in self._pods.by_uid().items():
            for volume in view.pod.spec.volumes:
                source = volume.empty_dir
                if source is None or source.size_limit is None or source.medium or view.terminating:
                    continue
                limit = value(source.size_limit)
                folder = self._root_dir / "pods" / uid / "volumes/kubernetes.io~empty-dir" / volume.name
                if limit and await asyncio.to_thread(_size, folder) > limit:
                    message = f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{source.size_limit}". '
                    self._pods.evict(uid, End("Failed", "Evicted", message))
                    break

    def _read(self) -> Mapping[str, Reading]:
        disk = os.statvfs(self._root_dir)
        space = Reading(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
        inodes = Reading(disk.f_favail, disk.f_files)
        return {
            "memory.available": Reading(available_memory(), self._memory_capacity),
            "nodefs.available": space,
            "nodefs.inodesFree": inodes,
            "imagefs.available": space,
            "imagefs.inodesFree": inodes,
        }


def _size(folder: Path) -> int:
    """Sum the blocks of a tree, links and other filesystems left alone."""
    total = 0
    try:
        device = folder.stat().st_dev
        for place, folders, files in os.walk(folder):
            for name in files:
                try:
                    total += os.lstat(os.path.join(place, name)).st_blocks * 512
                except OSError:
                    continue
            folders[:] = [f for f in folders if os.lstat(os.path.join(place, f)).st_dev == device]
    except OSError:
        pass
    return total
