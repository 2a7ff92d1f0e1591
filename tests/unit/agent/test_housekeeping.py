from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from agent.files.walk import remove
from agent.keyed_tasks import Begin
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.pods import housekeeping
from agent.pods.housekeeping import Housekeeping
from agent.pods.resource_state import PodResourceStates
from agent.volumes.cleanup import CleanupError
from agent.volumes.manager import VolumeManager
from tests.support.clock import FakeClock


class NoVolumes:
    """Volumes of which nothing is left; `during` runs while they are swept."""

    def __init__(self) -> None:
        self.during = lambda: None

    def orphans(self, known: set[str]) -> list[str]:
        return []

    async def sweep(self, begin: Begin) -> None:
        self.during()


def made(logs: Path, known: set[str], volumes: NoVolumes, metrics: KubeletMetrics | None = None) -> Housekeeping:
    lookup = cast(VolumeManager, volumes)
    return Housekeeping(
        lambda: set(known),
        lookup,
        PodResourceStates(logs.parent),
        None,
        logs,
        logs.parent / "containers",
        clock=FakeClock(),
        metrics=metrics,
    )


def folder(logs: Path, uid: str) -> Path:
    path = logs / f"default_pod_{uid}"
    (path / "main").mkdir(parents=True, exist_ok=True)
    (path / "main" / "0.log").write_text("line")
    return path


async def test_logs_of_pods_that_are_gone_are_removed_and_nothing_else(tmp_path: Path) -> None:
    logs, known = tmp_path / "pods", {"alive"}
    gone, alive, half = folder(logs, "gone"), folder(logs, "alive"), logs / ".removed-default_pod_dead"
    half.mkdir()
    (logs / "somebody-else").mkdir()
    await made(logs, known, NoVolumes()).sweep()
    assert not gone.exists() and not half.exists()
    assert sorted(path.name for path in logs.iterdir()) == [alive.name, "somebody-else"]


async def test_a_pod_that_starts_during_the_sweep_keeps_its_logs(tmp_path: Path) -> None:
    logs, known, volumes = tmp_path / "pods", set[str](), NoVolumes()
    logs.mkdir()
    started: list[Path] = []

    def start() -> None:
        known.add("new")
        started.append(folder(logs, "new"))

    volumes.during = start
    await made(logs, known, volumes).sweep()
    assert (started[0] / "main" / "0.log").exists()


async def test_a_pod_that_starts_while_its_old_logs_are_removed_keeps_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, known = tmp_path / "pods", set[str]()
    old = folder(logs, "again")
    removed: list[Path] = []

    def start_and_remove(path: Path) -> None:
        known.add("again")
        folder(logs, "again")
        removed.append(path)
        remove(path)

    monkeypatch.setattr(housekeeping, "remove", start_and_remove)
    await made(logs, known, NoVolumes()).sweep()
    assert len(removed) == 1 and not removed[0].exists()
    assert (old / "main" / "0.log").exists()


async def test_a_pod_that_starts_while_logs_of_another_are_removed_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, known = tmp_path / "pods", set[str]()
    paths = {uid: folder(logs, uid) for uid in ("one", "two")}

    def start_other_and_remove(path: Path) -> None:
        known.update(uid for uid in paths if not path.name.endswith(uid))
        remove(path)

    monkeypatch.setattr(housekeeping, "remove", start_other_and_remove)
    await made(logs, known, NoVolumes()).sweep()
    assert [uid for uid, path in paths.items() if (path / "main" / "0.log").exists()] == list(known)


async def test_a_link_that_somebody_else_removes_does_not_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "containers"
    links.mkdir()
    for name in ("a.log", "b.log"):
        (links / name).symlink_to(tmp_path / "gone")
    first: list[str] = []

    def exists_no_more(path: str) -> bool:
        if not first:
            os.unlink(path)
        first.append(path)
        return False

    monkeypatch.setattr(os.path, "exists", exists_no_more)
    await made(tmp_path / "pods", set(), NoVolumes()).sweep()
    assert list(links.iterdir()) == []


class HungVolumes(NoVolumes):
    """Volumes of two drivers and two pods that are gone; the first of each never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def orphans(self, known: set[str]) -> list[str]:
        return [uid for uid in ("hung", "well") if uid not in self.done]

    async def clean(self, uid: str) -> None:
        if uid == "hung":
            await asyncio.Event().wait()
        self.done.append(uid)

    async def sweep(self, begin: Begin) -> None:
        for driver in ("hung.csi", "well.csi"):
            begin(driver, partial(self.clean, driver.replace("hung.csi", "hung")))


async def test_a_storage_driver_that_does_not_answer_holds_up_its_own_volumes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "WAIT_SECONDS", 0.01)
    logs, volumes = tmp_path / "pods", HungVolumes()
    logs.mkdir()
    gone = folder(logs, "gone")
    housekeeper = made(logs, set(), volumes)
    async with asyncio.timeout(10):
        for _ in range(2):
            await housekeeper.sweep()
    assert not gone.exists()
    assert sorted(volumes.done) == ["well", "well.csi", "well.csi"]
    await housekeeper._tasks.close()


class FailingVolumes(NoVolumes):
    """Volumes of pods that are gone; the one of `failing` cannot be removed at first."""

    def __init__(self, failing: str, error: Exception) -> None:
        super().__init__()
        self.left, self.failing, self.error = {"one", "two", "three"}, {failing}, error

    def orphans(self, known: set[str]) -> list[str]:
        return sorted(self.left)

    async def clean(self, uid: str) -> None:
        if uid in self.failing:
            self.failing.discard(uid)
            raise self.error
        self.left.discard(uid)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), CleanupError("it is still mounted")])
@pytest.mark.parametrize("failing", ["one", "two", "three"])
async def test_a_pods_directory_that_cannot_be_removed_is_counted_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failing: str, error: Exception
) -> None:
    volumes, metrics = FailingVolumes(failing, error), KubeletMetrics()
    housekeeper = made(tmp_path / "pods", set(), volumes, metrics)
    await housekeeper.sweep()
    assert volumes.left == {failing} and f"removing the directory of pod {failing}: {error}" in caplog.text
    assert (metrics.orphan_volumes.value(), metrics.orphan_volume_errors.value()) == (2, 1)
    await housekeeper.sweep()
    assert volumes.left == set()
    assert (metrics.orphan_volumes.value(), metrics.orphan_volume_errors.value()) == (1, 0)
