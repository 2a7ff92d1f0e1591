"""Pods whose volumes hang: their disk usage is measured, and their directories are removed, all the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import thread_slots, threads
from agent.usage import pod_disk
from agent.usage.pod_disk import PodDiskWalker
from agent.volumes import cleanup, persistent
from agent.volumes.manager import VolumeManager
from agent.volumes.mounted_volume import MountedVolume
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock

NAMES = [f"nfs-{number}" for number in range(2 * threads.POD)]
POD = core_v1.Pod(
    metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u"),
    spec=core_v1.PodSpec(
        containers=[core_v1.Container(name="c")],
        volumes=[
            core_v1.Volume(name=name, nfs=core_v1.NFSVolumeSource(server="s.test", path=f"/{name}")) for name in NAMES
        ],
    ),
)


@pytest.fixture
async def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[persistent.PersistentVolumes]:
    """Make a pod of which as many calls to volumes hang as its limit allows."""
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.0)
    monkeypatch.setattr(thread_slots, "BLOCKED", 0.001)
    server_returns = threading.Event()
    monkeypatch.setattr(persistent, "_filesystem", lambda now, path: server_returns.wait() and None)
    made = persistent.PersistentVolumes(tmp_path / "pods", None, None, None)  # type: ignore[arg-type]
    made._there = {"u": {name: persistent._There(mounted=MountedVolume(Path("/nfs") / name)) for name in NAMES}}
    for _ in NAMES:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await made.volume_stats(POD)
    assert sum(threads.under_way(f"use of /nfs/{name}") for name in NAMES) == threads.POD
    with pytest.raises(OSError, match="calls of the pod"):
        await threads.call("u", os.getpid, owner=threads.Owner.of(POD))
    yield made
    server_returns.set()
    async with asyncio.timeout(5):
        while any(threads.under_way(f"use of /nfs/{name}") for name in NAMES):
            await asyncio.sleep(0.001)


async def test_the_disk_usage_of_a_pod_whose_volumes_hang_is_measured(
    tmp_path: Path, volumes: persistent.PersistentVolumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/scratch"
    scratch.mkdir(parents=True)
    (scratch / "large").write_bytes(bytes(1 << 20))
    clock = FakeClock()
    disks = PodDiskWalker(tmp_path / "pods", tmp_path / "logs", clock, volumes.volume_stats)
    monkeypatch.setattr(pod_disk, "WAIT_SECONDS", 0.1)
    for _ in range(20):
        if found := dict((await disks.measure([POD], 0))["u"].volumes):
            break
        await clock.advance(1)
    assert found["scratch"].used >= 1 << 20


async def test_a_measurement_that_hangs_is_begun_once_and_leaves_the_pod_its_other_calls(
    volumes: persistent.PersistentVolumes,
) -> None:
    walk_ends, begun = threading.Event(), list[int]()
    owner = threads.Owner.of(POD).for_purpose(threads.MEASUREMENT)

    def walk() -> None:
        begun.append(1)
        walk_ends.wait()

    walks = [asyncio.create_task(threads.call_shared("disk of u", walk, owner=owner)) for _ in range(3)]
    await asyncio.sleep(0)
    removal = threads.Owner.of(POD).for_purpose(threads.REMOVAL)
    async with asyncio.timeout(5):
        assert await threads.call("u", os.getpid, owner=removal) == os.getpid()
    walk_ends.set()
    await asyncio.gather(*walks)
    assert begun == [1]


async def test_a_pod_whose_volumes_hang_is_removed(
    tmp_path: Path, volumes: persistent.PersistentVolumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its emptyDir volumes occupied the disk for as long as the server of its other volumes was gone."""
    unmounted = list[Path]()

    def unmount(path: Path) -> bool:
        unmounted.append(path)
        return False

    monkeypatch.setattr(cleanup, "unmount_below", unmount)
    folder = tmp_path / "pods/u"
    for name in ("kubernetes.io~empty-dir/scratch", "kubernetes.io~nfs/nfs-0"):
        (folder / "volumes" / name).mkdir(parents=True)
    forget = cast(Any, SimpleNamespace(forget=lambda uid: None))
    made = VolumeManager(tmp_path / "pods", forget, forget, volumes, forget)
    made._owners["u"] = threads.Owner.of(POD)
    async with asyncio.timeout(5):
        await made.clean("u")
    assert not folder.exists() and folder in unmounted
