"""Measures pods' disk usage: a walk over each pod's volumes, logs and own files.

A pod decides how long its walk takes: it may have millions of files, and its containers can mount file systems that never
answer. So each pod is walked by itself. A snapshot waits for two seconds and has the last result of those that take longer; the
results of their walks count when they have ended. Volumes of the pod that hang stop no walk, which enters none of them: the
limits of a pod's disk usage depend on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent import threads
from agent.usage import machine
from agent.usage.model import Filesystem, PersistentUse
from kube.api import core_v1
from kube.clock import Clock

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
WALKS = 4
"""Walks begun at a time; one that takes longer than WAIT_SECONDS keeps no others from being begun."""
_ELSEWHERE = ("kubernetes.io~csi", "kubernetes.io~nfs", "kubernetes.io~local-volume")
"""Persistent volumes: not a pod's use of this node's disk; their usage is read by volume (persistent.py)."""

Persistent = Callable[[core_v1.Pod], Awaitable[tuple[PersistentUse, ...]]]


@dataclass(frozen=True, slots=True)
class PodDiskUse:
    """A pod's use of disk: logs by container, volumes by name, and its own files, as bytes and inodes."""

    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    volumes: tuple[tuple[str, Filesystem], ...] = ()
    files: tuple[int, int] = (0, 0)
    persistent: tuple[PersistentUse, ...] = ()


@dataclass(slots=True)
class _Known:
    disk: PodDiskUse = field(default_factory=PodDiskUse)
    read_at: float = float("-inf")
    walk: asyncio.Task[None] | None = None


class PodDiskWalker:
    """Measures pods' disk usage; `persistent` returns the usage of volumes outside the pod's directory."""

    def __init__(self, pods_dir: Path, logs_dir: Path, clock: Clock, persistent: Persistent | None = None) -> None:
        self._pods_dir, self._logs_dir, self._clock, self._persistent = pods_dir, logs_dir, clock, persistent
        self._known: dict[str, _Known] = {}
        self._places = asyncio.Semaphore(WALKS)

    async def measure(self, pods: Sequence[core_v1.Pod], seconds: float) -> dict[str, PodDiskUse]:
        """Return what pods use by UID, not older than so many seconds where that can be read in time."""
        now, before = self._clock.monotonic(), self._known
        self._known = {pod.metadata.uid or "": self._known.get(pod.metadata.uid or "") or _Known() for pod in pods}
        for uid in before.keys() - self._known.keys():
            if (walk := before[uid].walk) is not None:
                walk.cancel()
        for pod in pods:
            known = self._known[pod.metadata.uid or ""]
            if (known.walk is None or known.walk.done()) and now - known.read_at > seconds:
                known.walk = asyncio.create_task(self._measure(pod, known), name=f"disk of {pod.metadata.uid}")
        walks = [known.walk for known in self._known.values() if known.walk is not None and not known.walk.done()]
        if walks:
            await asyncio.wait(walks, timeout=WAIT_SECONDS)
        return {uid: known.disk for uid, known in self._known.items()}

    async def _measure(self, pod: core_v1.Pod, known: _Known) -> None:
        walk: asyncio.Task[None] | None = None
        try:
            async with self._places:
                walk = asyncio.create_task(self._walk(pod, known), name=f"walk over the files of {pod.metadata.uid}")
                await self._measure_elsewhere(pod, known)
                await asyncio.wait((walk,), timeout=WAIT_SECONDS)
            await walk
        except Exception as error:
            log.warning("measuring the disk usage of pod %s: %s", pod.metadata.uid, error)
        finally:
            if walk is not None:
                walk.cancel()
        known.read_at = self._clock.monotonic()

    async def _measure_elsewhere(self, pod: core_v1.Pod, known: _Known) -> None:
        """Read the usage of other volumes. A storage that hangs delays only its own."""
        if self._persistent is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    known.disk = replace(known.disk, persistent=await self._persistent(pod))

    async def _walk(self, pod: core_v1.Pod, known: _Known) -> None:
        uid, moment = pod.metadata.uid or "", self._clock.now().timestamp()
        folder, owner = self._pods_dir / uid, threads.Owner.of(pod).for_purpose(threads.MEASUREMENT)
        found = await threads.call_shared(f"disk of {uid}", read, pod, folder, self._logs_dir, moment, owner=owner)
        known.disk = replace(found, persistent=known.disk.persistent)


def read(pod: core_v1.Pod, folder: Path, logs_dir: Path, moment: float) -> PodDiskUse:
    """Walk over a pod's files. Blocks for as long as they are many."""
    metadata = pod.metadata
    logs_of_pod = logs_dir / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"
    spec = pod.spec
    names = [c.name for c in (*spec.containers, *spec.init_containers)] + [c.name for c in spec.ephemeral_containers]
    logs = {name: machine.disk_use(logs_of_pod / name) for name in names}
    volumes = []
    for path in (path for plugin in _below(folder / "volumes") for path in _below(plugin)):
        if path.parent.name in _ELSEWHERE:
            continue
        size, inodes = machine.disk_use(path)
        with contextlib.suppress(OSError):  # gone, or its storage fails: the pod's other volumes count all the same
            volumes.append((path.name, machine.filesystem(moment, path, size, inodes)))
    files = [machine.disk_use(folder / name) for name in ("etc-hosts", "containers")]
    return PodDiskUse(logs, tuple(volumes), (sum(size for size, _ in files), sum(inodes for _, inodes in files)))


def _below(folder: Path) -> list[Path]:
    """List what is in a folder; nothing where it is gone or none."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
