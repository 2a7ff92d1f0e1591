"""Parts of the soak: its faults begin and end, and nothing of them stays."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from agent.volumes.mounts import mount_points
from bench.soak import went_back
from bench.soak_disks import Disk, disks
from bench.soak_faults import Fault, Faults
from bench.soak_preloaded import COMPILER, TEN_YEARS, Preloaded
from tests.support.cluster import Cluster
from tests.support.disks import MI, small_disk

NOW = "import time; print(time.time(), time.monotonic()); time.sleep(0.01)"
SLEEP = """
import ctypes, time
class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]
def until(clock):
    at = time.clock_gettime_ns(clock) + 200_000_000
    ctypes.CDLL(None).clock_nanosleep(clock, 1, ctypes.byref(Time(at // 10**9, at % 10**9)), None)
for sleep in (lambda: time.sleep(0.2), lambda: until(time.CLOCK_MONOTONIC), lambda: until(time.CLOCK_REALTIME)):
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    sleep()
    print(time.clock_gettime(time.CLOCK_BOOTTIME) - began)
"""
SYNC = """
import os, sys
for path in sys.argv[1:]:
    for sync in (os.fsync, os.fdatasync):
        with open(path, "w") as file:
            try:
                sync(file.fileno())
            except OSError as error:
                print(error.errno)
            else:
                print(0)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[dict[str, Disk]]:
    prefix = tmp_path / "cluster"
    (tmp_path / "images").mkdir()
    with disks(tmp_path / "images", prefix) as made:
        yield made
    assert mount_points(tmp_path) == []


def write(disk: Disk, name: str) -> None:
    """Write and sync a file of several new blocks."""
    descriptor = os.open(disk.path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"x" * MI)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["store", "agent", "containerd"])
def test_a_disk_runs_full_and_fails_and_takes_writes_again(made: dict[str, Disk], name: str) -> None:
    disk = made[name]
    for begin, end, numbers in (
        (disk.fill, disk.free, {errno.ENOSPC}),
        (disk.fail, disk.heal, {errno.ENOSPC, errno.EIO}),
    ):
        for _ in range(2):
            begin()
            with pytest.raises(OSError) as raised:
                write(disk, "fails")
            assert raised.value.errno in numbers
            end()
            end()
            (disk.path / "fails").unlink()
            write(disk, "works")
            (disk.path / "works").unlink()


def test_a_frozen_disk_has_writes_wait_and_is_thawed_when_it_is_unmounted(made: dict[str, Disk]) -> None:
    disk = made["agent"]
    disk.freeze()
    thread = threading.Thread(target=write, args=(disk, "waits"))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    disk.thaw()
    thread.join(20)
    assert not thread.is_alive()
    disk.freeze()


@pytest.fixture
def preloaded(tmp_path: Path) -> Preloaded:
    if not shutil.which(COMPILER):
        pytest.skip(f"{COMPILER} is missing")
    return Preloaded(tmp_path)


def run(preloaded: Preloaded, program: str, *arguments: str) -> str:
    argv, environment = [sys.executable, "-c", program, *arguments], {**os.environ, **preloaded.environment}
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout


def test_the_wall_clock_of_programs_is_set_and_no_other_one(preloaded: Preloaded) -> None:
    for seconds in (0, 3600, -TEN_YEARS):
        preloaded.set_clock(seconds)
        began, before = time.time(), time.monotonic()
        wall, monotonic = map(float, run(preloaded, NOW).split())
        assert before <= monotonic <= time.monotonic()
        assert abs(wall - began - seconds) < 20


def test_programs_sleep_as_long_as_they_request_after_a_suspension_and_with_another_wall_clock(
    preloaded: Preloaded,
) -> None:
    preloaded.suspend(10)
    preloaded.set_clock(-3600)
    assert all(float(seconds) >= 0.19 for seconds in run(preloaded, SLEEP).split())


def test_fsync_of_programs_fails_on_one_disk(preloaded: Preloaded, tmp_path: Path) -> None:
    with small_disk(tmp_path / "other", MI) as other:
        for on, expected in ((other.path, ["5", "5", "0", "0"]), (None, ["0", "0", "0", "0"])):
            preloaded.fail_fsync(on)
            assert run(preloaded, SYNC, str(other.path / "file"), str(tmp_path / "file")).split() == expected


class Target:
    """Something that fails while `fails` is true."""

    def __init__(self) -> None:
        self.fails = False
        self.begun = 0

    def begin(self) -> None:
        assert not self.fails, "it fails already"
        self.fails = True
        self.begun += 1

    def end(self) -> None:
        self.fails = False


def drawn(*faults: Fault) -> Faults:
    kinds = {f"kind {number}": fault for number, fault in enumerate(faults)}
    return Faults(cast(Cluster, None), kinds, random.Random(1), tuple(kinds))


def test_a_target_fails_in_one_way_at_a_time_and_is_mended_early() -> None:
    target, other = Target(), Target()
    faults = drawn(
        Fault("disk", target.begin, target.end, (100.0, 100.0)),
        Fault("disk", target.begin, target.end, (100.0, 100.0)),
        Fault("plugin", other.begin, other.end, (0.01, 0.01)),
    )
    for _ in range(40):
        faults.one()
        time.sleep(0.02)
    assert target.begun == 1 and other.begun > 5
    assert faults.done.total() == target.begun + other.begun
    faults.mend()
    assert not target.fails
    faults.over()


def test_what_does_not_end_is_reported() -> None:
    def end() -> None:
        raise OSError("busy")

    faults = drawn(Fault("disk", lambda: None, end, (0.01, 0.01)))
    faults.one()
    faults.over()
    assert faults.errors == ["disk: busy"]


def test_phases_that_went_back_are_those_of_pods_that_only_one_agent_reported() -> None:
    phases = {"a 1": ["Pending", "Running", "Pending"], "b 2": ["Pending", "Running", "Pending"], "c 3": ["Running"]}
    assert went_back(phases, {"b 2"}) == ["a 1: Pending -> Running -> Pending"]
