"""Removes orphans, each with the tool that created it. Raise OSError, CommandError, ValueError.

Each orphan is checked again immediately before: its process ID or name may belong to another resource by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from pathlib import Path

from agent.config import OwnContainerd
from agent.files.walk import remove
from agent.orphans import cni, machine
from agent.orphans.machine import Daemon, Item
from agent.volumes.mounts import is_mount_point, mount_points, unmount
from kube.process import CommandError, run

TERM_SECONDS, KILL_SECONDS = 5.0, 5.0
_DELETE_SECONDS = 30.0
_RUNC_STATE = Path("/run/containerd/runc/k8s.io")
"""runc's state directory as shims set it, the same for every containerd."""


async def end_shim(of: OwnContainerd, by: Daemon, item: Item) -> None:
    """End a shim and remove its socket: SIGTERM, and SIGKILL where that does not end it."""
    try:
        descriptor = os.pidfd_open(item.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor stands for one process alone; what was read by its number before may be of another.
        if machine.shim(of, by, item.pid) != item:
            return
        for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            signal.pidfd_send_signal(descriptor, number)
            if await asyncio.to_thread(_ended, descriptor, seconds):
                break
        else:
            raise TimeoutError(f"process {item.pid} does not end")
    except (ProcessLookupError, FileNotFoundError):
        return
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        await asyncio.to_thread(_unlink_socket, of.bundles / item.owner / "address")


def _unlink_socket(address: Path) -> None:
    os.unlink(address.read_text().strip().removeprefix("unix://"))


def _ended(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


async def remove_container(of: OwnContainerd, owner: str) -> None:
    """Have runc end and forget a container that has no shim any more, and remove its bundle.

    The shim's own `delete` does the same, but only where the bundle is whole.
    """
    state = _RUNC_STATE / owner
    if await asyncio.to_thread(state.exists):
        await run(["runc", "--root", str(_RUNC_STATE), "delete", "--force", owner], timeout=_DELETE_SECONDS)
        await asyncio.to_thread(_remove, state)
    # Under its name with a dot containerd removes a bundle.
    for folder in (of.bundles / owner, of.bundles / f".{owner}", of.work / owner):
        await asyncio.to_thread(_remove, folder)


def _remove(folder: Path) -> None:
    for point in mount_points(folder):
        unmount(point)
    with contextlib.suppress(FileNotFoundError):
        remove(folder)


async def remove_namespace(of: OwnContainerd, item: Item) -> None:
    """Delete the network of a namespace, and the namespace; one with processes is kept."""
    for sandbox_id in await asyncio.to_thread(cni.sandboxes_in, of, item.name):
        await cni.delete(of, sandbox_id)
    if item not in await asyncio.to_thread(lambda: list(machine.namespaces(of))):
        return
    await asyncio.to_thread(_remove_namespace, Path(item.name))


def _remove_namespace(path: Path) -> None:
    if is_mount_point(path):
        unmount(path)
    path.unlink(missing_ok=True)


FAILURES = (OSError, CommandError, ValueError, KeyError)
