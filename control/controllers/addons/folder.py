"""The folder of addons: its files, and checks of who may have written them.

Their objects are applied with all permissions, so folder and files must be root's, or the control plane's own, and nobody else
may write them. A file is opened once, without following links, and what is open is checked and read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from control.addon_names import BUILT_IN
from kube import names

SUFFIXES = (".yaml", ".yml", ".json")
MOST_BYTES = 8 << 20
MOST_FILES = 1000

Stamp = tuple[int, ...]


class FolderRefused(Exception):
    """The folder cannot be used; the message is the reason with its fix."""


class FileRefused(Exception):
    """A file cannot be used; the message is the reason with its fix."""


class FileChanged(Exception):
    """A file is another than was scanned: it is being written, or was removed."""


@dataclass(frozen=True, slots=True)
class AddonFile:
    """A file of the folder. `name` is the addon's; with a `problem` the file is not used."""

    name: str
    path: Path
    stamp: Stamp
    problem: str = ""

    @property
    def is_addon(self) -> bool:
        """True if an addon may have the name, whatever is wrong with the file."""
        return not _problem_of_name(self.name)


def scan(folder: Path, owners: Collection[int]) -> list[AddonFile]:
    """Return the addon files of a folder by name; `owners` are the accounts that may own it. Raise FolderRefused."""
    with _opened(folder, owners) as descriptor:
        try:
            entries = sorted(name for name in os.listdir(descriptor) if _is_addon(name))
        except OSError as error:
            raise FolderRefused(f"{folder} cannot be read: {error.strerror}") from error
        if len(entries) > MOST_FILES:
            raise FolderRefused(f"{folder} has more than {MOST_FILES} files of addons")
        counts = Counter(_name(entry) for entry in entries)
        found = []
        for entry in entries:
            try:
                status = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            name = _name(entry)
            problem = _problem_of_name(name) or _problem(folder / entry, status, owners)
            if not problem and counts[name] > 1:
                problem = f"{folder} has several files of the addon {name}: keep one of them"
            found.append(AddonFile(name, folder / entry, _stamp(status), problem))
    return found


def read(file: AddonFile, owners: Collection[int]) -> bytes:
    """Return the content of a file. Raise FileRefused, FileChanged."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with _opened(file.path.parent, owners) as folder:
            descriptor = os.open(file.path.name, flags, dir_fd=folder)
    except FolderRefused as error:
        raise FileRefused(str(error)) from error
    except FileNotFoundError as error:
        raise FileChanged from error
    except PermissionError as error:
        raise FileRefused(
            f"{file.path} cannot be read by the control plane: chgrp wherry {file.path}; chmod g+r {file.path}"
        ) from error
    except OSError as error:
        raise FileRefused(f"{file.path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(opened.fileno())
        if problem := _problem(file.path, status, owners):
            raise FileRefused(problem)
        data = opened.read(MOST_BYTES + 1)
        if _stamp(status) != file.stamp or _stamp(os.fstat(opened.fileno())) != file.stamp:
            raise FileChanged
    if len(data) > MOST_BYTES:
        raise FileRefused(_too_large(file.path))
    return data


@contextlib.contextmanager
def _opened(folder: Path, owners: Collection[int]) -> Iterator[int]:
    """Open the folder for the block, if it may be trusted. Raise FolderRefused."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FolderRefused(f"there is no folder {folder}: `wherry up` creates it") from error
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        if problem := _distrust(folder, os.fstat(descriptor), owners):
            raise FolderRefused(problem)
        yield descriptor
    finally:
        os.close(descriptor)


def _distrust(path: Path, status: os.stat_result, owners: Collection[int]) -> str:
    """Return the reason why others than administrators may have written a file or folder."""
    if status.st_uid not in owners:
        return f"{path} is owned by the account {status.st_uid}: chown root {path}"
    if status.st_mode & 0o022:
        return f"{path} may be written by others than its owner: chmod go-w {path}"
    return ""


def _problem(path: Path, status: os.stat_result, owners: Collection[int]) -> str:
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link: copy the file"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file: remove it"
    if status.st_size > MOST_BYTES:
        return _too_large(path)
    return _distrust(path, status, owners)


def _too_large(path: Path) -> str:
    return f"{path} is larger than {MOST_BYTES >> 20} MiB: split it"


def _is_addon(entry: str) -> bool:
    return not entry.startswith(".") and entry.endswith(SUFFIXES)


def _name(entry: str) -> str:
    return entry.rpartition(".")[0]


def _problem_of_name(name: str) -> str:
    if problems := names.dns1123_label(name):
        return f"{name!r} cannot be the name of an addon: {problems[0]}; rename the file"
    return f"{name} is a built-in addon: rename the file" if name in BUILT_IN else ""


def _stamp(status: os.stat_result) -> Stamp:
    """Return what changes with every write, replacement and change of owner or mode."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
