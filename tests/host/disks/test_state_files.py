"""State files of the agent are complete or unchanged on a full disk."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi import layout
from agent.managers import state_files
from agent.node import log_rotation
from agent.shutdown import state
from tests.support.disks import KI, MI, FailingDisk, SmallDisk, failing_disk, small_disk

LONG = "x" * (20 * KI)


def note(path: Path, text: str) -> None:
    state_files.write(path, {"entries": text})


def volume(path: Path, text: str) -> None:
    layout._write(path, {"volumeHandle": text})


def shutdown(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    state.save(path, text, None)


WRITERS: dict[str, Callable[[Path, str], None]] = {
    "cpu_manager_state": note,
    "vol_data.json": volume,
    state.FILE: shutdown,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, MI) as disk:
        yield disk


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("left", [0, 4 * KI, 12 * KI])
def test_a_file_that_does_not_fit_leaves_the_one_before_and_nothing_else(disk: SmallDisk, name: str, left: int) -> None:
    path = disk.path / "state" / name
    WRITERS[name](path, "before")
    before = path.read_bytes()
    disk.fill(leave=left)
    with pytest.raises(OSError, match="No space left on device"):
        WRITERS[name](path, LONG)
    assert path.read_bytes() == before
    assert [found.name for found in path.parent.iterdir()] == [name]
    disk.free()
    WRITERS[name](path, LONG)
    found: Any = msgspec.json.decode(path.read_bytes())
    assert LONG in (*found, *found.values())


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path) as disk:
        yield disk


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_whose_write_or_sync_fails_is_the_one_before_also_after_a_power_cut(
    failing: FailingDisk, tmp_path: Path, name: str
) -> None:
    path = failing.path / "state" / name
    WRITERS[name](path, "before")
    before = path.read_bytes()
    subprocess.run(["sync", "--file-system", str(path)], check=True, timeout=60)
    failing.fail()
    with pytest.raises(OSError, match=r"Input/output error|No space left on device"):
        WRITERS[name](path, LONG)
    assert path.read_bytes() == before
    assert [found.name for found in path.parent.iterdir()] == [name]
    found = failing.copy_after_power_cut(tmp_path)
    assert (found / "state" / name).read_bytes() == before
    failing.heal()
    WRITERS[name](path, LONG)
    decoded: Any = msgspec.json.decode(path.read_bytes())
    assert LONG in (*decoded, *decoded.values())


def compress_all(log: Path) -> None:
    for rotated in log_rotation.tidy(log, 5):
        log_rotation.compress(rotated)


def test_a_log_that_cannot_be_compressed_stays_and_leaves_nothing_beside(disk: SmallDisk) -> None:
    log = disk.path / "0.log"
    log.write_bytes(b"")
    rotated = disk.path / "0.log.20260101-000000"
    rotated.write_bytes(bytes(range(256)) * 256)
    before = rotated.read_bytes()
    disk.fill()
    # What shrinks to nothing would fit.
    rotated.write_bytes(before)
    with pytest.raises(OSError, match="No space left on device"):
        compress_all(log)
    assert rotated.read_bytes() == before
    assert sorted(found.name for found in disk.path.glob("0.log*")) == [log.name, rotated.name]
    disk.free()
    compress_all(log)
    assert sorted(found.name for found in disk.path.glob("0.log*")) == [log.name, f"{rotated.name}.gz"]
