"""Watching directories with what the kernel gives, and without it."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from kube import inotify

MASK = inotify.CLOSE_WRITE | inotify.CREATE | inotify.MOVED_TO | inotify.DELETE


class Kernel:
    """The C library whose calls may be refused; counts the instances that are open."""

    def __init__(self, real: Any) -> None:
        self._real, self.no_instance, self.no_watch, self.made = real, False, False, 0

    def inotify_init1(self, flags: int) -> int:
        if self.no_instance:
            return self._refuse(errno.EMFILE)
        self.made += 1
        return int(self._real.inotify_init1(flags))

    def inotify_add_watch(self, fd: int, path: bytes, mask: int) -> int:
        return self._refuse(errno.ENOSPC) if self.no_watch else int(self._real.inotify_add_watch(fd, path, mask))

    def inotify_rm_watch(self, fd: int, watch: int) -> int:
        return int(self._real.inotify_rm_watch(fd, watch))

    @staticmethod
    def _refuse(error: int) -> int:
        ctypes.set_errno(error)
        return -1


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(inotify._libc)
    monkeypatch.setattr(inotify, "_libc", kernel)
    monkeypatch.setattr(inotify, "POLL_SECONDS", 0.01)
    return kernel


def _instances() -> int:
    gc.collect()
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return links.count("anon_inode:inotify")


async def _names(watcher: inotify.Watcher) -> set[str]:
    return {name for name, _ in await watcher.wait(10)}


async def test_watchers_share_an_instance_and_hear_of_their_own_directories(tmp_path: Path, kernel: Kernel) -> None:
    before = _instances()
    for name in "ab":
        (tmp_path / name).mkdir()
    with inotify.Watcher() as one, inotify.Watcher() as two, inotify.Watcher() as three:
        one.add(tmp_path / "a", MASK)
        two.add(tmp_path / "b", MASK)
        three.add(tmp_path / "a", inotify.DELETE)
        assert (_instances(), kernel.made) == (before + 1, 1)
        (tmp_path / "a" / "x").touch()
        assert await _names(one) == {"x"}
        assert await two.wait(0) == await three.wait(0) == []
        with inotify.Watcher() as four:
            four.add(tmp_path / "a", MASK)
        (tmp_path / "a" / "x").unlink()
        assert await three.wait(10) == [("x", inotify.DELETE)] and await _names(one) == {"x"}
    assert _instances() == before


@pytest.mark.parametrize("refused", ["no_instance", "no_watch"])
async def test_what_the_kernel_refuses_to_watch_is_looked_at(tmp_path: Path, kernel: Kernel, refused: str) -> None:
    (tmp_path / "there").write_text("before")
    setattr(kernel, refused, True)
    with inotify.Watcher() as watcher:
        watcher.add(tmp_path, MASK)
        assert await watcher.wait(0.05) == []
        (tmp_path / "new").touch()
        assert await _names(watcher) == {"new"}
        (tmp_path / "there").write_text("after it")
        [(name, mask)] = await watcher.wait(10)
        assert name == "there" and mask & inotify.CLOSE_WRITE and not mask & inotify.DELETE
        (tmp_path / "new").unlink()
        assert await watcher.wait(10) == [("new", inotify.DELETE)]
        with pytest.raises(FileNotFoundError):
            watcher.add(tmp_path / "none", MASK)


async def test_the_kernel_watches_as_soon_as_it_can(tmp_path: Path, kernel: Kernel) -> None:
    kernel.no_instance = True
    with inotify.Watcher() as watcher:
        watcher.add(tmp_path, MASK)
        kernel.no_instance = False
        (tmp_path / "one").touch()
        assert await _names(watcher) == {"one"}
        assert kernel.made == 1 and not watcher._polled
        await watcher.wait(0)
        (tmp_path / "two").touch()
        assert await _names(watcher) == {"two"}


async def test_a_directory_deleted_during_the_scan_is_reported(tmp_path: Path, kernel: Kernel) -> None:
    kernel.no_instance = True
    (tmp_path / "gone").mkdir()
    with inotify.Watcher() as watcher:
        watcher.add(tmp_path / "gone", MASK)
        (tmp_path / "gone").rmdir()
        kernel.no_instance = False
        assert await _names(watcher) == {""}
        assert await watcher.wait(0.05) == []


async def test_events_that_nobody_fetches_take_no_more_memory(tmp_path: Path) -> None:
    with inotify.Watcher() as watcher, (tmp_path / "log").open("w") as file:
        watcher.add(tmp_path, inotify.MODIFY)
        for _ in range(100):
            file.write("x")
            file.flush()
            await asyncio.sleep(0)
        assert await watcher.wait(10) == [("log", inotify.MODIFY)]
