"""Creates files in folders that other accounts may own: whole, under names that were free, and without following links.

Whoever may write a folder can at any time replace each name in it, and in the folder's own path, by a link or another folder.
So the folder is opened once, content is written through a descriptor, and a name is used only to create and to remove one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kube.files import naming_file
from wherry import os_errors
from wherry.errors import WherryError

MODE = 0o600
PARTIAL = ".partial"
"""End of the names of files that are not complete."""


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Create a file of mode 0600 for reading and writing, which gets its name when the block ends, and is removed if it fails.

    Raises WherryError if something has the name, or if the file cannot be created, OSError. Blocks.
    """
    with _folder_of(path) as folder, _create(folder, path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
        _name(folder, file.fileno(), path)
        os.fsync(folder)


def link_or_copy(source: Path, path: Path) -> None:
    """Give a file of a private folder another name, where it can have one, or copy it; raises as `new_file`. Blocks."""
    with _folder_of(path) as folder:
        try:
            os.link(source, path.name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError as error:
            raise _exists(path) from error
        except OSError:  # another filesystem, or one without hard links
            pass
        else:
            os.fsync(folder)
            return
    with new_file(path) as target, source.open("rb") as file:
        shutil.copyfileobj(file, target, 1 << 20)


def name_or_copy(file: IO[bytes], path: Path) -> None:
    """Give an open file without a name one, where it can have one, or copy it; raises as `new_file`. Blocks."""
    os.fsync(file.fileno())
    with _folder_of(path) as folder:
        try:
            os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder)
        except FileExistsError as error:
            raise _exists(path) from error
        except OSError:  # another filesystem, or one without such files
            pass
        else:
            os.fsync(folder)
            return
    with new_file(path) as target:
        file.seek(0)
        shutil.copyfileobj(file, target, 1 << 20)


@contextlib.contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WherryError(f"{path} cannot be written: {os_errors.reason(error)}") from error
    try:
        if _there(folder, path.name):
            raise _exists(path)
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _create(folder: int, path: Path) -> Iterator[IO[bytes]]:
    """Create a file under a name that says that it is not complete, which is removed in the end."""
    partial = path.name + PARTIAL
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(partial, flags, MODE, dir_fd=folder)
    except FileExistsError as error:
        raise _exists(path.with_name(partial)) from error
    except OSError as error:
        raise WherryError(f"{path} cannot be written: {os_errors.reason(error)}") from error
    try:
        with naming_file(path), open(descriptor, "w+b") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)


def _name(folder: int, descriptor: int, path: Path) -> None:
    """Give the open file its name, unless another file has it by now."""
    try:
        # The file that was written, whatever has its first name by now.
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder)
    except FileExistsError as error:
        raise _exists(path) from error
    except FileNotFoundError as error:
        raise WherryError(f"{path} cannot be written: another account removed the file") from error
    except OSError:  # a filesystem without hard links
        if _there(folder, path.name):
            raise _exists(path) from None
        os.rename(path.name + PARTIAL, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def _there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _exists(path: Path) -> WherryError:
    return WherryError(f"{path} exists: remove it or name another file")
