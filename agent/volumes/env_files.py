"""Reads files with variables from a pod's emptyDir volumes (fileKeyRef).

Containers write to the volume, so links in it are resolved within the volume, as if it were the root folder, and the resolved
path is opened part by part without following a link. A pipe or a device is not read.

A container may name many files, and one file by many paths. Paths that differ only in "." and "//" are one file, and the
number of files and their size are limited.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent import thread_slots
from agent.podspec.env_files import EnvFile, parse
from agent.podspec.environment import ContainerConfigError
from agent.volumes.payload import VolumeError
from agent.volumes.subpath import open_below

LARGEST = 1024 * 1024
"""Bytes of the files of a container. Upstream has no limit; the variables of a container have one."""
FILES = 16
"""Files of a container."""
_LONGEST_PATH = 4096
_LINKS = 40
"""Links in a path that the kernel follows."""
_PARTS = 256
"""Folders in a path, also in those of its links."""

Segments = tuple[str, ...]


def read(
    volumes: Mapping[str, Path], wanted: Mapping[tuple[str, str], Iterable[str]]
) -> dict[tuple[str, str], EnvFile]:
    """Read the variables that a container wants, by volume and path; a file that cannot be read has an error.

    Raise ContainerConfigError if there are too many files.
    """
    files: dict[tuple[str, Segments], set[str]] = {}
    for (volume, path), keys in wanted.items():
        files.setdefault((volume, _parts(path)), set()).update(keys)
    if len(files) > FILES:
        raise ContainerConfigError(f"the variables of the container name {len(files)} files, {FILES} are allowed")
    found, room = {}, LARGEST
    for (volume, parts), keys in sorted(files.items()):
        found[volume, parts], size = _file(volumes[volume], parts, keys, room)
        room -= size
    return {(volume, path): found[volume, _parts(path)] for volume, path in wanted}


def _parts(path: str) -> Segments:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _file(volume: Path, parts: Segments, keys: set[str], room: int) -> tuple[EnvFile, int]:
    """Return the variables of a file, and how many bytes it has."""
    path = "/".join((str(volume), *parts))
    try:
        data = _read(volume, _within(volume, parts), room)
    except (OSError, VolumeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return EnvFile(path, {}, f"failed to open environment variable file {path!r}: {reason}"), 0
    return parse(path, data.decode(errors="replace"), keys), len(data)


def _within(volume: Path, parts: Segments) -> Segments:
    """Return the parts of a path below the volume with its links resolved."""
    if sum(map(len, parts)) + len(parts) > _LONGEST_PATH:
        raise VolumeError("the path is too long")
    done, pending, links, walked = list[str](), list(parts[::-1]), 0, 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        walked += 1
        if walked > _PARTS:
            raise VolumeError(f"the path has more than {_PARTS} parts")
        if part == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink("/".join((str(volume), *done, part)))
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _LINKS:
            raise VolumeError("too many links")
        if target.startswith("/"):
            done.clear()
        pending += target.split("/")[::-1]
    return tuple(done)


def _read(volume: Path, parts: Segments, room: int) -> bytes:
    descriptor = open_below(volume, parts)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise VolumeError("not a regular file")
        if status.st_size > room:
            size = f"the file has {status.st_size} bytes"
            raise VolumeError(f"{size}, {LARGEST} are allowed for all files of a container, of which {room} are left")
        thread_slots.pause()  # one that hung has lost its slot, and those that wait for one are to hold no data
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            return file.read(room)
    finally:
        os.close(descriptor)
