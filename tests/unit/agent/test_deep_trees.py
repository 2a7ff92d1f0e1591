"""Folders that pods nest deeper than Python's stack and the limit on open files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.files.walk import entries_below, remove
from agent.pods.housekeeping import Housekeeping
from agent.pods.resource_state import PodResourceStates
from agent.pods.steps.termination import remove_logs
from agent.podspec.sandbox import log_directory
from agent.usage import machine, pod_disk
from agent.usage.machine import disk_use
from agent.volumes import atomic, cleanup, ownership
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod

LEVELS = 1500


def nest(root: Path) -> None:
    """Make a folder with 1500 below each other, and a file at the bottom."""
    root.mkdir(parents=True)
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor))
    os.close(descriptor)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "deep"
    nest(root)
    yield root
    if root.exists():
        cleanup.remove_tree(root)  # pytest's own removal recurses


def test_a_deep_tree_is_given_to_a_group_and_removed(deep: Path) -> None:
    ownership.set_ownership(deep, os.getgid())
    bits = [os.stat(name, dir_fd=at).st_mode & 0o7777 for at, name, _ in entries_below(deep)]
    assert len(bits) == LEVELS + 1
    assert bits[0] == 0o660 and all(found & 0o2070 == 0o2070 for found in bits[1:])
    open_files = len(os.listdir("/proc/self/fd"))
    cleanup.remove_tree(deep)
    assert not deep.exists() and len(os.listdir("/proc/self/fd")) == open_files


def test_disk_use_counts_what_lies_deeper_than_a_path_can_name(tmp_path: Path) -> None:
    root = tmp_path / "volume"
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(25):  # longer than PATH_MAX in all
        os.mkdir("d" * 200, dir_fd=descriptor)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    file = os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor)
    os.posix_fallocate(file, 0, 1 << 20)
    os.close(file)
    os.close(descriptor)
    size, inodes = disk_use(root)
    assert size >= 1 << 20 and inodes == 27
    remove(root)


def test_disk_use_counts_what_it_found_before_a_folder_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 16))

    def interrupted(folder: Path, on_vanished: Any) -> Iterator[tuple[int, str, bool]]:
        yield from entries_below(folder)
        raise OSError(errno.ESTALE, "folder was moved during the walk")

    monkeypatch.setattr(machine, "entries_below", interrupted)
    size, inodes = disk_use(tmp_path)
    assert size >= 1 << 16 and inodes == 2


def test_the_hosts_file_and_termination_messages_count_as_the_pods_use_of_disk(tmp_path: Path) -> None:
    folder = tmp_path / "pod"
    (folder / "containers/c").mkdir(parents=True)
    (folder / "etc-hosts").write_bytes(bytes(1 << 16))
    (folder / "containers/c/0a").write_bytes(bytes(1 << 17))
    size, inodes = pod_disk.read(pod(), folder, tmp_path / "logs", 0.0).files
    assert size >= (1 << 16) + (1 << 17) and inodes == 4


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Any]:
    """Make an ended pod whose logs hold a deep tree."""
    config = SimpleNamespace(pod_logs_dir=tmp_path / "pods", container_logs_dir=tmp_path / "containers")
    runtime = SimpleNamespace(containers=(), sandboxes=())
    ended = SimpleNamespace(
        state=SimpleNamespace(uid="u", pod=pod({"name": "main"}), runtime=runtime),
        deps=SimpleNamespace(config=config, resources=PodResourceStates(tmp_path)),
    )
    logs = log_directory(config.pod_logs_dir, ended.state.pod)
    nest(Path(logs))
    yield ended
    if os.path.exists(logs):
        cleanup.remove_tree(Path(logs))


async def test_a_deep_tree_among_a_pods_logs_does_not_stop_its_end(context: Any, tmp_path: Path) -> None:
    await remove_logs(context)
    assert list((tmp_path / "pods").iterdir()) == []


async def test_housekeeping_removes_a_deep_tree_among_logs(context: Any, tmp_path: Path) -> None:
    volumes = SimpleNamespace(orphans=lambda known: [], sweep=nothing)
    folders = tmp_path / "pods", tmp_path / "containers"
    await Housekeeping(set, cast(Any, volumes), PodResourceStates(tmp_path), None, *folders, clock=FakeClock()).sweep()
    assert list((tmp_path / "pods").iterdir()) == []


async def nothing(*_: object) -> None: ...


def test_what_cannot_be_removed_stays_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    for name in ("a", "b", "c"):
        (root / name).mkdir(parents=True)
        (root / name / name).touch()
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int) -> None:
        if name == "b":
            raise PermissionError(errno.EPERM, "immutable", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        with pytest.raises(PermissionError):
            remove(root)
    assert sorted(path.name for path in root.rglob("*")) == ["b", "b"]


def test_a_payload_of_deep_paths_is_written_compared_and_removed(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    path = "d/" * 1020 + "file"
    assert atomic.write(volume, {path: atomic.File(b"x", 0o644)}, os.getgid())
    assert not atomic.write(volume, {path: atomic.File(b"x", 0o644)}, os.getgid())
    assert (volume / path).read_bytes() == b"x"
    assert atomic.write(volume, {"file": atomic.File(b"y", 0o644)})
    assert sorted(entry.name for entry in volume.iterdir() if not entry.is_symlink()) == [
        os.readlink(volume / "..data")
    ]
