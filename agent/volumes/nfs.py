"""NFS volumes, mounted by mount(8) with its helper mount.nfs, since NFS needs more than the system call (pkg/volume/nfs)."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from agent import threads
from agent.threads import Owner
from agent.volumes import mounts
from agent.volumes.payload import VolumeError
from kube import process

MOUNT_SECONDS = 120.0
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


async def mount(
    server: str, export: str, target: Path, options: Sequence[str], *, read_only: bool, owner: Owner
) -> None:
    """Mount server:export onto a path unless it is mounted. Raise VolumeError with mount's message."""
    # A pod's author writes both, and mount(8) and mount.nfs(8) run as root: neither may be read as an option.
    host = _host(server)
    if not export.startswith("/") or _CONTROL.search(export):
        raise VolumeError(f"nfs path {export!r} must be an absolute path without control characters")
    if await threads.call(str(target), _prepared, target, owner=owner):
        return
    chosen = [*(["ro"] if read_only else []), *options]
    arguments = [
        "-t",
        "nfs",
        *(["-o", ",".join(dict.fromkeys(chosen))] if chosen else []),
        "--",
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


def _host(server: str) -> str:
    """Return a server as it stands before the path: an IPv6 address in brackets. Raise VolumeError."""
    address, separator, zone = server.removeprefix("[").removesuffix("]").partition("%")
    if ":" in address:
        try:
            if not separator or _ZONE.fullmatch(zone):
                ipaddress.IPv6Address(address)
                return f"[{address}{separator}{zone}]"
        except ValueError:
            pass
    elif _HOST_NAME.fullmatch(server):
        return server
    raise VolumeError(f"nfs server {server!r} must be a host name or an IP address")


def _prepared(target: Path) -> bool:
    """Make the mount's folder; True if it is mounted already."""
    if mounts.is_mount_point(target):
        return True
    target.mkdir(parents=True, exist_ok=True, mode=0o750)
    return False
