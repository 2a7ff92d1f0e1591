"""Mounts a device: formats it where it is empty, checks its file system otherwise (SafeFormatAndMount upstream).

`grow` resizes a mounted file system to its device (ResizeFs in k8s.io/mount-utils).

The contents of a device are never overwritten: only one on which blkid(8) finds nothing at all is formatted, and none that is
read-only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from agent import threads
from agent.threads import Owner
from agent.volumes import mounts
from agent.volumes.payload import VolumeError
from kube import process
from kube.locks import Locks

DEFAULT = "ext4"
COMMAND_SECONDS = 600.0
"""Time that commands may take, but for those that make or check a file system: large ones take hours."""
_NOTHING_FOUND = 2
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KIND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FSCK_UNCORRECTED = 4
_KILLED = "exited with signal"
"""Output of fsck(8) if the checker that it started was killed; the exit status is the same as without a checker."""
_devices = Locks()
"""Held from the look at a device to its mount: nothing may be checked while another pod mounts it."""


async def mount(device: str, target: Path, kind: str, options: Sequence[str], *, read_only: bool, owner: Owner) -> None:
    """Mount a device's file system, made as `kind` where there is none. Raise VolumeError."""
    # fsck(8) takes no "--", and the type is part of a command's name.
    if not device.startswith("/") or _CONTROL.search(device):
        raise VolumeError(f"path {device!r} of a device must be absolute, without control characters")
    if kind and not _KIND.fullmatch(kind):
        raise VolumeError(f"{kind!r} is no type of file system")
    if await threads.call(str(target), _prepared, target, owner=owner):
        return
    async with _devices.of(device):
        await _mount(device, target, kind, options, read_only=read_only)


async def grow(device: str, target: Path) -> None:
    """Resize the file system of a device, which is mounted, to the device's size. Raise VolumeError."""
    async with _devices.of(device):
        found = await _found(device)
        if found in ("ext2", "ext3", "ext4"):
            await _run(["resize2fs", device])
        elif found == "xfs":
            await _run(["xfs_growfs", "-d", str(target)])
        elif found == "btrfs":
            await _run(["btrfs", "filesystem", "resize", "max", str(target)])
        elif found:
            raise VolumeError(f"resize of format {found} is not supported for device {device} mounted at {target}")


async def _mount(device: str, target: Path, kind: str, options: Sequence[str], *, read_only: bool) -> None:
    found = await _found(device)
    if not found and read_only:
        raise VolumeError(f"cannot mount unformatted disk {device} as we are manipulating it in read-only mode")
    if not found:
        kind = kind or DEFAULT
        quick = ["-F", "-m0"] if kind.startswith("ext") else []
        await _run([f"mkfs.{kind}", *quick, "--", device], timeout=None)
    elif kind and found != kind:
        raise VolumeError(f"failed to mount the volume as {kind}, it already contains {found}")
    elif not read_only:
        await _check(device)
    chosen = list(dict.fromkeys(["ro" if read_only else "defaults", *options]))
    await _run(["mount", "-t", found or kind, "-o", ",".join(chosen), "--", device, str(target)])


async def _found(device: str) -> str:
    """Return the type of what is on a device, "" where there is nothing. Raise VolumeError."""
    result = await _run(
        ["blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--", device], good=(0, _NOTHING_FOUND)
    )
    values = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    if "PTTYPE" in values and "TYPE" not in values:
        raise VolumeError(f"device {device} holds a partition table, which is no file system and is not overwritten")
    return values.get("TYPE", "")


async def _check(device: str) -> None:
    """Correct the errors of a file system with fsck(8) if it is installed, without a timeout. Raise VolumeError.

    One that fsck could not correct, or did not come to the end of, is refused: half corrected it would be made worse.
    """
    if await asyncio.to_thread(mounts.is_mounted, device):
        return  # another pod uses it
    try:
        result = await process.run(["fsck", "-a", device], timeout=None, check=False, env={"LC_ALL": "C"})
    except process.CommandError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise VolumeError(str(error)) from error
    if result.returncode < 0 or _KILLED in result.stdout + result.stderr:
        output = (result.stderr or result.stdout).strip()
        raise VolumeError(f"'fsck' was killed before it had checked device {device}: {output}")
    if result.returncode == _FSCK_UNCORRECTED:
        raise VolumeError(f"'fsck' found errors on device {device} but could not correct them: {result.stdout.strip()}")


async def _run(
    argv: Sequence[str], good: Sequence[int] = (0,), timeout: float | None = COMMAND_SECONDS
) -> process.Result:
    try:
        result = await process.run(argv, timeout=timeout, check=False)
    except process.CommandError as error:
        raise VolumeError(str(error)) from error
    if result.returncode not in good:
        output = (result.stderr or result.stdout).strip()
        raise VolumeError(f"{' '.join(argv)}: exit status {result.returncode}: {output}")
    return result


def _prepared(target: Path) -> bool:
    """Make the mount's folder; True if it is mounted already."""
    if mounts.is_mount_point(target):
        return True
    target.mkdir(parents=True, exist_ok=True, mode=0o750)
    return False
