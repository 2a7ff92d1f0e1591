"""Updates the files of a volume atomically: ConfigMaps, Secrets, tokens.

Layout and steps are upstream's AtomicWriter (pkg/volume/util/atomic_writer.go), which programs rely on when they watch for
changes: the files are in a directory named by time, `..data` is a link to it, and every visible name is a link through
`..data`. An update writes a new directory and swaps the link by rename, so a reader sees the old set or the new.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.files.walk import remove
from agent.thread_slots import pause

_DATA, _NEW_DATA = "..data", "..data_tmp"


@dataclass(frozen=True, slots=True)
class File:
    """One projected file; `uid` None leaves it root's."""

    data: bytes
    mode: int
    uid: int | None = None


class PayloadError(Exception):
    """A path of the payload must not be written."""


def check_path(path: str) -> str:
    """Return the path if it stays inside the volume and leaves our own names alone. Raise PayloadError."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or parts[0].startswith("..") or len(path) > 4096:
        raise PayloadError(f"invalid path in volume: {path!r}")
    return path


def write(folder: Path, payload: Mapping[str, File], group: int | None = None) -> bool:
    """Update the directory to the payload (path to file); False if it was current. Raise PayloadError, OSError."""
    for path in payload:
        check_path(path)
    current = _current(folder)
    if current is not None and _same(folder / current, payload, group):
        return False
    fresh = Path(tempfile.mkdtemp(prefix=time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()), dir=folder))
    try:
        fresh.chmod(0o755)
        _fill(fresh, payload, group)
        link = folder / _NEW_DATA
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(fresh.name)
        link.rename(folder / _DATA)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(fresh)
        raise
    _show(folder, payload)
    if current is not None:
        with contextlib.suppress(OSError):
            remove(folder / current)
    return True


def _current(folder: Path) -> str | None:
    try:
        name = os.readlink(folder / _DATA)
    except OSError:
        return None
    return name if "/" not in name and (folder / name).is_dir() else None


def _same(current: Path, payload: Mapping[str, File], group: int | None) -> bool:
    if {path for path, is_folder in _below(current) if not is_folder} != set(payload):
        return False
    for path, file in payload.items():
        pause()
        target = current / path
        found = target.stat()
        if found.st_mode & 0o777 != _mode(file, group) or found.st_size != len(file.data):
            return False
        if target.read_bytes() != file.data:
            return False
    return True


def _below(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file and folder below a folder, and whether it is a folder; nothing recurses."""
    left = [""]
    while left:
        prefix = left.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                pause()
                is_folder = entry.is_dir(follow_symlinks=False)
                yield prefix + entry.name, is_folder
                if is_folder:
                    left.append(f"{prefix}{entry.name}/")


def _mode(file: File, group: int | None) -> int:
    # With an fsGroup the group may read what the owner may (pkg/volume/volume_linux.go).
    return file.mode | (0o440 if group is not None else 0)


def _fill(fresh: Path, payload: Mapping[str, File], group: int | None) -> None:
    for path, file in payload.items():
        pause()
        target = fresh / path
        if not target.parent.is_dir():
            # Path.mkdir(parents=True) calls itself for each folder, and a path has up to 2000.
            for parent in reversed(target.parents[: path.count("/")]):
                parent.mkdir(exist_ok=True)
        target.write_bytes(file.data)
        if file.uid is not None or group is not None:
            os.chown(target, file.uid if file.uid is not None else -1, group if group is not None else -1)
        target.chmod(_mode(file, group))
    if group is not None:
        for below in [fresh, *(fresh / path for path, is_folder in _below(fresh) if is_folder)]:
            os.chown(below, -1, group)
            below.chmod(0o2775)


def _show(folder: Path, payload: Mapping[str, File]) -> None:
    """Make the visible links for the payload's top names and remove those it no longer has."""
    wanted = {path.split("/")[0] for path in payload}
    for name in wanted:
        pause()
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{name}")
    for entry in os.scandir(folder):
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in wanted:
            os.unlink(entry.path)
