import asyncio
import dataclasses
import gzip
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from agent import limiter
from agent.attached_clients import AttachedClients
from agent.interfaces import Pods, PodView
from agent.node import log_rotation
from agent.node.log_rotation import LogRotation, compress, remove_logs, tidy
from agent.runtime_records import ContainerRecord, State
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.api import core_v1, meta_v1
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
    assert tidy(tmp_path / "0.log", max_files) == []
    assert [path.name for path in tmp_path.iterdir()] == ["0.log"]


def test_what_an_interrupted_compression_left_is_removed(tmp_path: Path) -> None:
    for name in ("0.log", "0.log.1", "0.log.1.gz", "0.log.2.gz.tmp", "0.log.2", "1.log"):
        (tmp_path / name).write_text(name)
    (left,) = tidy(tmp_path / "0.log", 5)
    compress(left)
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
        compress(planted)
    assert not list(tmp_path.glob("*.gz*"))


def test_a_link_among_rotated_logs_is_removed_unread(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "0.log.20260101-000000").symlink_to(tmp_path / "secret")
    assert tidy(tmp_path / "0.log", 5) == []
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


class Compressions:
    """Takes the place of compressions: each lasts until it is released; `begun` has the namespaces."""

    def __init__(self) -> None:
        self.begun = list[str]()
        self._turn = threading.Semaphore(0)

    def compress(self, path: Path) -> None:
        self.begun.append(path.parent.parent.name)
        assert self._turn.acquire(timeout=30)
        path.unlink()

    def release(self, number: int) -> None:
        self._turn.release(number)


def grown(folder: Path, namespace: str, number: int, old: bool) -> PodView:
    """Return a pod with a log that is too large; `old` if there is a rotated one to compress."""
    path = folder / namespace / str(number) / "0.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(200))
    if old:
        path.with_name("0.log.20250101-000000").touch()
    record = ContainerRecord(id=f"{namespace}-{number}", name="main", state=State.RUNNING, log_path=str(path))
    return PodView(core_v1.Pod(metadata=meta_v1.ObjectMeta(namespace=namespace)), (record,), None)


async def test_compressions_of_a_namespace_delay_neither_the_agents_files_nor_other_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, world, reopened = Compressions(), World(tmp_path), list[str]()
    views = [grown(tmp_path, "busy", number, old=True) for number in range(12)]

    async def reopen(container_id: str) -> None:
        reopened.append(container_id)

    monkeypatch.setattr(log_rotation, "compress", slow.compress)
    monkeypatch.setattr(log_rotation, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.01)
    monkeypatch.setattr(world, "views", lambda: views)
    monkeypatch.setattr(world, "reopen_container_log", reopen)
    with ThreadPoolExecutor(4) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        try:
            async with asyncio.timeout(20):
                while len(slow.begun) < log_rotation.COMPRESSIONS or world.rotation._limiter.slots_lent < 12:
                    await world.rotation.rotate_all()
                await asyncio.to_thread(lambda: None)
                views += [grown(tmp_path, "first", 0, old=False), grown(tmp_path, "other", 0, old=True)]
                while "first-0" not in reopened:
                    await world.rotation.rotate_all()
                while world.rotation._limiter.slots_lent < 13:
                    await asyncio.sleep(0.001)
                while "other-0" not in reopened:
                    slow.release(1)
                    await asyncio.sleep(0.001)
            assert slow.begun[:2] == ["busy", "busy"] and slow.begun.index("other") <= 3
        finally:
            slow.release(len(views))
            await world.rotation._tasks.close()


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
