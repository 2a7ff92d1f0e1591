"""NFS volumes, mounted by mount(8) with its helper mount.nfs, since NFS needs more than the system call (pkg/volume/nfs)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from agent.volumes import mounts
from agent.volumes.payload import VolumeError
from kube import process

MOUNT_SECONDS = 120.0


async def mount(server: str, export: str, target: Path, options: Sequence[str], *, read_only: bool) -> None:
    """Mount server:export onto a path unless that is done. Raise VolumeError with mount's own words."""
    if await asyncio.to_thread(_prepared, target):
        return
    # An IPv6 address is told from the path by its brackets.
    host = f"[{server}]" if ":" in server and not server.startswith("[") else server
    chosen = [*(["ro"] if read_only else []), *options]
    arguments = [
        "-t",
        "nfs",
        *(["-o", ",".join(dict.fromkeys(chosen))] if chosen else []),
        f"{host}:{export}",
        str(target),
    ]
    try:
        result = await process.run(["mount", *arguments], timeout=MOUNT_SECONDS, check=False)
    except process.CommandError as error:
        raise VolumeError(f"mount failed: {error}") from error
    if result.returncode != 0:
        helper = await asyncio.to_thread(shutil.which, "mount.nfs", path="/sbin:/usr/sbin")
        hint = "" if helper else "\nmount.nfs is not installed on this node (package nfs-common or nfs-utils)"
        raise VolumeError(
            f"mount failed: exit status {result.returncode}\nMounting command: mount\n"
            f"Mounting arguments: {' '.join(arguments)}\nOutput: {(result.stderr or result.stdout).strip()}{hint}"
        )


def _prepared(target: Path) -> bool:
    """Make the mount's folder; True where it is mounted already."""
    if mounts.is_mount_point(target):
        return True
    target.mkdir(parents=True, exist_ok=True, mode=0o750)
    return False
