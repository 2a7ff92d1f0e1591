from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from agent.csi.volumes import Begin
from agent.node import housekeeping
from agent.node.housekeeping import Housekeeping
from agent.pods.resource_state import PodResourceStates
from agent.volumes.manager import VolumeManager
from kube.clock import FakeClock


class NoVolumes:
    """Volumes of which nothing is left; `during` runs while they are swept."""

    def __init__(self) -> None:
        self.during = lambda: None

    def orphans(self, known: set[str]) -> list[str]:
        return []

    async def sweep(self, begin: Begin) -> None:
        self.during()


def made(logs: Path, known: set[str], volumes: NoVolumes) -> Housekeeping:
    lookup = cast(VolumeManager, volumes)
    return Housekeeping(
        lambda: known, lookup, PodResourceStates(logs.parent), None, logs, logs.parent / "containers", clock=FakeClock()
    )


def folder(logs: Path, uid: str) -> Path:
    path = logs / f"default_pod_{uid}"
    (path / "main").mkdir(parents=True)
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


async def test_a_pod_that_starts_while_its_old_logs_are_removed_keeps_the_new_ones(tmp_path: Path) -> None:
    logs, known = tmp_path / "pods", set[str]()
    old = folder(logs, "again")
    task = asyncio.create_task(made(logs, known, NoVolumes()).sweep())
    async with asyncio.timeout(10):
        while old.exists():
            await asyncio.sleep(0)
    known.add("again")
    folder(logs, "again")
    await task
    assert (old / "main" / "0.log").exists()


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
    keeper = made(logs, set(), volumes)
    async with asyncio.timeout(10):
        for _ in range(2):
            await keeper.sweep()
    assert not gone.exists()
    assert sorted(volumes.done) == ["well", "well.csi", "well.csi"]
    await keeper._tasks.close()
