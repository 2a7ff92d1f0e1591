"""Disk usage of pods if the walk over a pod's files takes long or never ends."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from agent.usage import pod_disk
from agent.usage.pod_disk import PodDiskUse, PodDiskWalker
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock


def pod(uid: str) -> core_v1.Pod:
    return core_v1.Pod(metadata=meta_v1.ObjectMeta(name=uid, namespace="n", uid=uid))


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make the walks of pods whose UID begins with `slow` last until this is set."""
    released = threading.Event()

    def read(pod: core_v1.Pod, folder: Path, logs_dir: Path, moment: float) -> PodDiskUse:
        if (pod.metadata.uid or "").startswith("slow"):
            released.wait()
        return PodDiskUse(files=(int(moment), 1))

    monkeypatch.setattr(pod_disk, "read", read)
    monkeypatch.setattr(pod_disk, "WAIT_SECONDS", 0.05)
    return released


async def test_the_walk_of_a_pod_of_many_files_counts_when_it_has_ended(release: threading.Event) -> None:
    clock = FakeClock()
    disks = PodDiskWalker(Path("/pods"), Path("/logs"), clock)
    pods = [pod(f"slow-{number}") for number in range(pod_disk.WALKS)] + [pod("quick")]
    async with asyncio.timeout(20):
        while not (found := await disks.measure(pods, 60))["quick"].files[1]:
            pass  # its turn comes when the others have had theirs for a while
    assert found["slow-0"] == PodDiskUse()
    release.set()
    async with asyncio.timeout(20):
        while not all(one.files[1] for one in (await disks.measure(pods, 60)).values()):
            pass
    before = await disks.measure(pods, 60)
    await clock.advance(30)
    assert await disks.measure(pods, 60) == before
    await clock.advance(31)
    assert (await disks.measure(pods, 60))["quick"] != before["quick"]


async def test_a_pod_that_is_gone_is_no_longer_waited_for(release: threading.Event) -> None:
    disks = PodDiskWalker(Path("/pods"), Path("/logs"), FakeClock())
    await disks.measure([pod("slow")], 60)
    assert await disks.measure([pod("quick")], 60) and disks._known.keys() == {"quick"}
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if "slow" in task.get_name()]
    release.set()


async def test_a_volume_elsewhere_that_does_not_answer_leaves_the_figures_of_the_folder(
    release: threading.Event,
) -> None:
    async def hang(pod: core_v1.Pod) -> tuple[()]:
        await asyncio.Event().wait()
        return ()

    disks = PodDiskWalker(Path("/pods"), Path("/logs"), FakeClock(), hang)
    async with asyncio.timeout(20):
        while not (await disks.measure([pod("quick")], 60))["quick"].files[1]:
            pass


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
def test_a_volume_that_is_gone_or_fails_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "volumes" / "kubernetes.io~empty-dir" / name).mkdir(parents=True)
    (tmp_path / "volumes" / "kubernetes.io~secret").mkdir()
    (tmp_path / "volumes" / "file").touch()
    (tmp_path / "etc-hosts").write_bytes(bytes(1 << 16))
    statvfs, listdir = os.statvfs, os.listdir

    def look(path: Path) -> os.statvfs_result:
        if path.name == "b":
            raise OSError(number, os.strerror(number))
        return statvfs(path)

    def list_folder(path: Path) -> list[str]:
        if Path(path).name == "kubernetes.io~secret":
            raise OSError(number, os.strerror(number))
        return listdir(path)

    monkeypatch.setattr(os, "statvfs", look)
    monkeypatch.setattr(os, "listdir", list_folder)
    found = pod_disk.read(pod("u"), tmp_path, tmp_path / "logs", 0.0)
    assert [name for name, _ in found.volumes] == ["a", "c"] and found.files[0] >= 1 << 16


def test_files_of_persistent_volumes_are_no_use_of_the_pods(tmp_path: Path) -> None:
    for kind in ("kubernetes.io~empty-dir", "kubernetes.io~local-volume", "kubernetes.io~csi", "kubernetes.io~nfs"):
        (tmp_path / "pod/volumes" / kind / kind[14:]).mkdir(parents=True)
    found = pod_disk.read(pod("pod"), tmp_path / "pod", tmp_path, 0.0)
    assert [name for name, _ in found.volumes] == ["empty-dir"]


def test_logs_of_all_kinds_of_containers_count(tmp_path: Path) -> None:
    made = pod("u")
    made.spec.containers = [core_v1.Container(name="main")]
    made.spec.init_containers = [core_v1.Container(name="init")]
    made.spec.ephemeral_containers = [core_v1.EphemeralContainer(name="debug")]
    for name in ("main", "init", "debug"):
        (tmp_path / "logs/n_u_u" / name).mkdir(parents=True)
        (tmp_path / "logs/n_u_u" / name / "0.log").write_bytes(bytes(1 << 16))
    found = pod_disk.read(made, tmp_path, tmp_path / "logs", 0.0)
    assert found.logs.keys() == {"main", "init", "debug"} and all(size >= 1 << 16 for size, _ in found.logs.values())
