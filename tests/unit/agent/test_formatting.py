"""fsck(8) and mkfs(8) of a device: as long as they take, and nothing is mounted after one that did not come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.threads import Owner
from agent.volumes import formatting, mounts
from agent.volumes.payload import VolumeError
from kube import process
from kube.process import CommandError, Result
from tests.support.clock import settle

OWNER = Owner("uid", "n")


class Commands:
    """Executed commands with their limits; `found` is what blkid(8) sees, `fsck` what that answers or raises."""

    def __init__(self) -> None:
        self.run: list[tuple[str, float | None]] = []
        self.found, self.fsck = "ext4", Result(0, "", "")
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, argv: Sequence[str], *, timeout: float | None = 60, **_: Any) -> Result:
        self.run.append((argv[0], timeout))
        if argv[0] == "blkid":
            return Result(0, f"TYPE={self.found}", "") if self.found else Result(2, "", "")
        if argv[0] == "fsck":
            await self.go_on.wait()
            if self.error is not None:
                raise CommandError(argv, str(self.error)) from self.error
            return self.fsck
        return Result(0, "", "")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.run]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    monkeypatch.setattr(process, "run", made)
    monkeypatch.setattr(mounts, "is_mounted", lambda device: "mount" in made.names)
    return made


async def mount(folder: Path) -> None:
    await formatting.mount("/dev/disk", folder, "ext4", (), read_only=False, owner=OWNER)


@pytest.mark.parametrize(
    ("found", "command"),
    [("ext3", "resize2fs"), ("ext4", "resize2fs"), ("xfs", "xfs_growfs"), ("btrfs", "btrfs"), ("", None)],
)
async def test_a_file_system_grows_with_its_own_command(
    tmp_path: Path, commands: Commands, found: str, command: str | None
) -> None:
    commands.found = found
    await formatting.grow("/dev/disk", tmp_path)
    assert commands.names == ["blkid", command] if command else ["blkid"]


async def test_another_file_system_does_not_grow(tmp_path: Path, commands: Commands) -> None:
    commands.found = "vfat"
    with pytest.raises(
        VolumeError, match=f"resize of format vfat is not supported for device /dev/disk mounted at {tmp_path}"
    ):
        await formatting.grow("/dev/disk", tmp_path)


async def test_checking_and_making_a_file_system_have_no_limit(tmp_path: Path, commands: Commands) -> None:
    await mount(tmp_path / "a")
    commands.found = ""
    await mount(tmp_path / "b")
    assert [each for each in commands.run if each[0] in ("fsck", "mkfs.ext4")] == [("fsck", None), ("mkfs.ext4", None)]


@pytest.mark.parametrize("error", [TimeoutError(), PermissionError("fsck")])
async def test_a_file_system_that_could_not_be_checked_is_not_mounted(
    tmp_path: Path, commands: Commands, error: Exception
) -> None:
    commands.error = error
    with pytest.raises(VolumeError):
        await mount(tmp_path / "a")
    assert "mount" not in commands.names


@pytest.mark.parametrize(
    "result", [Result(-9, "", ""), Result(8, "", "Warning... fsck.ext4 for device /dev/disk exited with signal 9.")]
)
async def test_a_file_system_whose_check_was_killed_is_not_mounted(
    tmp_path: Path, commands: Commands, result: Result
) -> None:
    commands.fsck = result
    with pytest.raises(VolumeError, match="killed"):
        await mount(tmp_path / "a")
    assert "mount" not in commands.names


@pytest.mark.parametrize("result", [Result(1, "", ""), Result(8, "", "fsck: error 2 while executing fsck.none")])
async def test_a_file_system_is_mounted_where_it_was_corrected_or_has_no_checker(
    tmp_path: Path, commands: Commands, result: Result
) -> None:
    commands.fsck = result
    await mount(tmp_path / "a")
    assert commands.names[-1] == "mount"


async def test_a_file_system_is_mounted_where_there_is_no_fsck(tmp_path: Path, commands: Commands) -> None:
    commands.error = FileNotFoundError("fsck")
    await mount(tmp_path / "a")
    assert commands.names[-1] == "mount"


async def test_a_device_is_checked_for_one_pod_at_a_time(tmp_path: Path, commands: Commands) -> None:
    commands.go_on.clear()
    tasks = [asyncio.create_task(mount(tmp_path / name)) for name in "ab"]
    while "fsck" not in commands.names:
        await asyncio.sleep(0.01)
    await settle()
    assert "mount" not in commands.names
    commands.go_on.set()
    await asyncio.gather(*tasks)
    assert commands.names.count("fsck") == 1
    assert commands.names.count("mount") == 2
