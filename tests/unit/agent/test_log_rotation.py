import asyncio
import dataclasses
import gzip
import os
from pathlib import Path
from typing import cast

import pytest

from agent import limiter
from agent.attached_clients import AttachedClients
from agent.interfaces import Pods, PodView
from agent.node import log_rotation
from agent.node.log_rotation import LogRotation, remove_logs, tidy
from agent.runtime_records import ContainerRecord, State
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.api import core_v1
from tests.support.clock import FakeClock


class World:
    """A log, its container, and a runtime that begins a new file when told."""

    def __init__(self, folder: Path, running: bool = True) -> None:
        self.path = folder / "0.log"
        self.reopened = 0
        self.refuse = False
        self.late = False
        """The runtime begins a new file, and the call ends without a response."""
        self.clock = FakeClock()
        state = State.RUNNING if running else State.EXITED
        self._record = ContainerRecord(id="id", name="main", state=state, log_path=str(self.path))
        self.rotation = LogRotation(
            cast(RuntimeService, self),
            cast(Pods, self),
            self.clock,
            AttachedClients(),
            max_bytes=100,
            max_files=4,
            period=10,
        )

    def views(self) -> list[PodView]:
        return [PodView(core_v1.Pod(), (self._record,), None)]

    async def reopen_container_log(self, container_id: str) -> None:
        assert container_id == "id"
        if self.refuse:
            raise CRIError("container is not running")
        self.reopened += 1
        self.path.touch()
        if self.late:
            raise CRIError("Deadline Exceeded")

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir())


async def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path.write_bytes(bytes(99))
    await world.rotation.rotate_all()
    assert (world.names(), world.reopened) == (["0.log"], 0)


async def test_a_large_log_is_renamed_and_begun_anew_and_older_ones_are_compressed_and_dropped(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(5):
        world.path.write_bytes(b"%d" % number * 100)
        await world.rotation.rotate_all()
        await world.clock.advance(1)
    assert world.reopened == 5
    assert world.names() == ["0.log", "0.log.20260101-000002.gz", "0.log.20260101-000003.gz", "0.log.20260101-000004"]
    assert gzip.decompress((tmp_path / "0.log.20260101-000003.gz").read_bytes()) == b"3" * 100
    assert (tmp_path / "0.log.20260101-000004").read_bytes() == b"4" * 100


async def test_where_the_runtime_refuses_the_log_keeps_its_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.refuse = True
    world.path.write_bytes(bytes(200))
    await world.rotation.rotate_all()
    assert world.names() == ["0.log"]


async def test_a_new_file_that_a_call_without_response_has_begun_is_not_replaced(tmp_path: Path) -> None:
    """The container writes into it: replaced, it would be a deleted file that no limit counts."""
    world = World(tmp_path)
    world.late = True
    world.path.write_bytes(b"old" * 100)
    await world.rotation.rotate_all()
    assert world.names() == ["0.log", "0.log.20260101-000000"] and world.path.read_bytes() == b""


async def test_a_log_lost_half_way_is_begun_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.rotation.rotate_all()
    assert (world.names(), world.reopened) == (["0.log"], 1)


async def test_the_log_of_a_container_that_ended_is_not_rotated(tmp_path: Path) -> None:
    world = World(tmp_path, running=False)
    world.path.write_bytes(bytes(200))
    await world.rotation.rotate_all()
    assert world.names() == ["0.log"]


@pytest.mark.parametrize("max_files", [1, 2])
def test_with_two_files_nothing_old_is_kept(tmp_path: Path, max_files: int) -> None:
    for name in ("0.log", "0.log.20260101-000000", "0.log.20260101-000001.gz"):
        (tmp_path / name).touch()
    tidy(tmp_path / "0.log", max_files)
    assert [path.name for path in tmp_path.iterdir()] == ["0.log"]


def test_what_an_interrupted_compression_left_is_removed(tmp_path: Path) -> None:
    for name in ("0.log", "0.log.1", "0.log.1.gz", "0.log.2.gz.tmp", "0.log.2", "1.log"):
        (tmp_path / name).write_text(name)
    tidy(tmp_path / "0.log", 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", "0.log.1.gz", "0.log.2.gz", "1.log"]


def test_a_log_is_removed_with_its_rotated_files(tmp_path: Path) -> None:
    for name in ("0.log", "0.log.1.gz", "0.log.2", "1.log"):
        (tmp_path / name).touch()
    remove_logs(tmp_path / "0.log")
    assert [path.name for path in tmp_path.iterdir()] == ["1.log"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_regular_file_is_compressed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("secret")
    planted = tmp_path / "0.log.20260101-000000"
    if kind == "link":
        planted.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(planted)
    with pytest.raises(OSError, match=r"symbolic links|no regular file"):
        log_rotation._compress(planted)
    assert not list(tmp_path.glob("*.gz*"))


def test_a_link_among_rotated_logs_is_removed_unread(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "0.log.20260101-000000").symlink_to(tmp_path / "secret")
    tidy(tmp_path / "0.log", 5)
    assert [found.name for found in tmp_path.iterdir()] == ["secret"]


async def test_a_log_that_cannot_be_read_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    broken, world = World(tmp_path / "file"), World(tmp_path)  # a path below a file: ENOTDIR
    world.path.write_bytes(bytes(200))
    own = world.views()
    broken._record = dataclasses.replace(broken._record, id="broken")
    monkeypatch.setattr(world, "views", lambda: broken.views() + own)
    await world.rotation.rotate_all()
    assert world.reopened == 1


async def test_a_log_that_the_runtime_does_not_reopen_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rotation, "WAIT_SECONDS", 0.01)
    worlds = [World(tmp_path / str(number)) for number in range(log_rotation.AT_ONCE)]
    hung, reopened = [world.views()[0].containers[0] for world in worlds], list[str]()
    views = []
    for number, world in enumerate(worlds):
        world.path.parent.mkdir()
        world.path.write_bytes(bytes(200))
        own = dataclasses.replace(hung[number], id=f"hung-{number}")
        views.append(PodView(core_v1.Pod(), (own,), None))

    async def reopen(container_id: str) -> None:
        reopened.append(container_id)
        if container_id.startswith("hung"):
            await asyncio.Event().wait()

    world = World(tmp_path)
    world.path.write_bytes(bytes(200))
    other = world.views()
    monkeypatch.setattr(world, "views", lambda: views + other)
    monkeypatch.setattr(world, "reopen_container_log", reopen)
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.05)
    running = asyncio.create_task(world.rotation.run())
    try:
        async with asyncio.timeout(10):
            while "id" not in reopened:
                await world.clock.advance(10)
                await asyncio.sleep(0.01)  # files are renamed in threads
        assert sorted(reopened)[:4] == [f"hung-{number}" for number in range(4)], "each is called once"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
