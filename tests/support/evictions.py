"""Eviction in memory: pods that hold their resources until they are released, and the loop that evicts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from agent.eviction import Eviction
from agent.eviction.image_filesystem import ImageFilesystem
from agent.eviction.signals import Reading
from agent.eviction.thresholds import ThresholdTracker, thresholds
from agent.interfaces import PodView
from agent.lifecycle import End
from agent.runtime_records import ContainerRecord, State
from agent.usage.model import CPU, ContainerUse, Filesystem, Memory, NodeUse, PodUse, Snapshot
from cri.client import Client
from cri.errors import UnavailableError
from cri.messages import FilesystemIdentifier, FilesystemUsage
from kube.api import core_v1
from kube.clock import SYSTEM, Clock


def signal(name: str, available: int, capacity: int = 100) -> dict[str, Reading]:
    return {name: Reading(available, capacity)}


def pod(name: str, priority: int = 0, requests: Mapping[str, str] = {}, **more: Any) -> core_v1.Pod:
    container = {"name": "c", "resources": {"requests": dict(requests), **more.pop("resources", {})}}
    body = {"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "containers": [container], **more}}
    return msgspec.convert(body, core_v1.Pod)


def use(name: str, *, memory: int = 0, rootfs: int = 0, logs: int = 0, **volumes: int) -> PodUse:
    container = ContainerUse(
        name="c",
        container_id="1",
        image="i",
        started_at=0.0,
        cpu=CPU(0.0, 0),
        memory=Memory(0.0, memory),
        memory_limit=0,
        rootfs_used=rootfs,
        rootfs_inodes=0,
        logs_used=logs,
        logs_inodes=0,
    )
    disks = tuple((volume, Filesystem(0.0, 0, 0, used, 0, 0, 0)) for volume, used in volumes.items())
    return PodUse(name, "default", name, 0.0, (container,), None, None, (), 0, disks)


class SlowToEnd:
    """Takes the place of the node's pods, which keep their resources until they are released."""

    def __init__(self, *names: str) -> None:
        running = (ContainerRecord(id="1", name="c", state=State.RUNNING),)
        self.found = {name: PodView(pod(name), running, None) for name in names}
        self.evicted: list[str] = []
        self.messages: list[str] = []
        self.let_go = asyncio.Event()

    def by_uid(self) -> Mapping[str, PodView]:
        return dict(self.found)

    def evict(self, uid: str, end: End, grace: int, *, grounds: str = "") -> None:
        self.found[uid] = msgspec.structs.replace(self.found[uid], terminating=True, shortened=True)
        self.evicted.append(uid)
        self.messages.append(end.message)

    async def wait_released(self, uid: str) -> None:
        await self.let_go.wait()


def evictions(
    pods: SlowToEnd,
    hard: Mapping[str, str],
    read: Callable[[], Mapping[str, Reading]],
    *used: PodUse,
    free: Callable[[int], int] = lambda wanted: 0,
    remove_leftovers: Callable[[], object] = lambda: None,
    clock: Clock = SYSTEM,
    images: ImageFilesystem | None = None,
    ending: tuple[PodUse, ...] = (),
) -> Eviction:
    """Make the loop over pods that use so much; `free` removes unused images."""
    disk = Filesystem(0.0, 0, 0, 0, 0, 0, 0)

    async def snapshot(age: float) -> Snapshot:
        return Snapshot(NodeUse("n", 0.0, CPU(0.0, 0), Memory(0.0, 0), (), disk, disk, 0, 0), used, ending)

    async def freed(wanted: int) -> int:
        return free(wanted)

    async def removed() -> None:
        remove_leftovers()

    watch = ThresholdTracker(thresholds(hard, {}, {}, {}), 0.0)
    found = images or ImageFilesystem(cast(Client, Runtime(Path("/"))), Path("/"))
    return Eviction(pods, watch, read, snapshot, freed, lambda: None, found, remove_leftovers=removed, clock=clock)  # type: ignore[arg-type]


class Runtime:
    """Reports the filesystem of images; raises an error while there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.images = folder, self

    async def image_fs_info(self) -> list[Any]:
        if self.folder is None:
            raise UnavailableError("containerd is not there")
        return [FilesystemUsage(fs_id=FilesystemIdentifier(mountpoint=str(self.folder)))]
