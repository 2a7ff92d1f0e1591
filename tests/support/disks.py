"""Small disks of a test's own that run full, fail, turn read-only or stop answering. Needs root.

What the test machines have: loop devices with ext4, tmpfs, remounting and FUSE. They have no device mapper and no NFS. So a
disk that fails is ext4 on a thin image: where the image's own file system has no room left, the device answers with EIO,
as thinly provisioned storage does. The kernel then does what it does with any failing disk: fsync fails once, and the
pages that were never written count as clean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.volumes import mounts

KI, MI = 1 << 10, 1 << 20


@dataclass
class SmallDisk:
    """A mounted file system that one call fills and another gives space again."""

    path: Path
    _filled: list[Path] = field(default_factory=list)

    def fill(self, leave: int = 0) -> None:
        """Take all space but `leave` bytes, to the last block."""
        filler = self.path / f".filler-{len(self._filled)}"
        self._filled.append(filler)
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for size in (MI, 64 * KI, 4 * KI, KI):
                _allocate_until_full(descriptor, size)
            os.fsync(descriptor)
            os.ftruncate(descriptor, max(os.fstat(descriptor).st_size - leave, 0))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give back what `fill` took."""
        while self._filled:
            self._filled.pop().unlink(missing_ok=True)

    def read_only(self, on: bool) -> None:
        """Remount it read-only, as the kernel does with a disk that has errors, or writable again."""
        _command("mount", "-o", f"remount,{'ro' if on else 'rw'}", str(self.path))


def _allocate_until_full(descriptor: int, size: int) -> None:
    """Allocate blocks without writing them, so that a thin image below stays thin."""
    with contextlib.suppress(OSError):
        while True:
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)


@contextlib.contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs of so many bytes."""
    path.mkdir(parents=True, exist_ok=True)
    mounts.mount_tmpfs(path, size=size)
    try:
        yield SmallDisk(path)
    finally:
        unmount(path)


@dataclass
class FailingDisk:
    """ext4 on a thin image: writes of new blocks fail with EIO once `fail` was called."""

    path: Path
    _backing: SmallDisk
    _image: Path
    _failing_since: float = 0.0

    def fail(self) -> None:
        """Let the device have no more blocks."""
        self._failing_since = time.time() - 1
        self._backing.fill()

    def heal(self) -> None:
        """Let the device have blocks again.

        Directories that changed meanwhile are written again as long as memory has them: without a journal they would be lost
        with the file system's structure, which only a repair of the disk restores. Data of files stays lost.
        """
        self._backing.free()
        for directory in self._changed_directories():
            with contextlib.suppress(OSError):  # removed by now
                entry = directory / f".written-again-{os.getpid()}"
                entry.touch()
                entry.unlink()

    def _changed_directories(self) -> Iterator[Path]:
        device = self.path.stat().st_dev
        for name, folders, _ in os.walk(self.path):
            here = Path(name)
            for folder in list(folders):
                with contextlib.suppress(OSError):
                    found = (here / folder).lstat()
                    if found.st_dev != device:
                        folders.remove(folder)
            with contextlib.suppress(OSError):
                if here.stat().st_mtime >= self._failing_since:
                    yield here

    def copy_after_power_cut(self, folder: Path) -> Path:
        """Copy a folder of the disk as it would be found after a power cut now: what only memory has is lost."""
        copy, there = folder / "image", folder / "disk"
        shutil.copyfile(self._image, copy)
        there.mkdir()
        # The copy is repaired as at a start of the machine; 1 says that there was something to repair.
        _command("e2fsck", "-fy", str(copy), fine=(0, 1, 2))
        with _looped(copy) as device, _mounted(device, there):
            shutil.copytree(there, folder / "found")
        return folder / "found"


@contextlib.contextmanager
def failing_disk(
    folder: Path, size: int = 16 * MI, *, path: Path | None = None, inodes: int = 1024
) -> Iterator[FailingDisk]:
    """Mount ext4 without a journal on a thin image, so that files' data alone can fail; at `path` or below the folder.

    What is deleted is discarded, so that the image is thin again there.
    """
    with small_disk(folder / "backing", size + MI) as backing:
        image, path = backing.path / "image", path or folder / "failing"
        path.mkdir(parents=True, exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(size)
        features = ("-O", "^has_journal,^metadata_csum", "-E", "lazy_itable_init=0")
        _command("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-N", str(inodes), *features, str(image))
        with _looped(image) as device, _mounted(device, path, "-o", "discard"):
            yield FailingDisk(path, backing, image)


@contextlib.contextmanager
def ext4_disk(folder: Path, size: int = 16 * MI) -> Iterator[SmallDisk]:
    """Mount ext4 of so many bytes, none of them kept for root."""
    folder.mkdir(parents=True, exist_ok=True)
    image, path = folder / "image", folder / "disk"
    path.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    _command("mkfs.ext4", "-q", "-m", "0", "-N", "1024", str(image))
    with _looped(image) as device, _mounted(device, path):
        yield SmallDisk(path)


@contextlib.contextmanager
def _looped(image: Path) -> Iterator[Path]:
    device = _command("losetup", "--find", "--show", str(image)).strip()
    try:
        # One page a request: the loop driver treats a partial write of its file as complete.
        Path("/sys/block", Path(device).name, "queue/max_sectors_kb").write_text("4")
        yield Path(device)
    finally:
        _command("losetup", "--detach", device)


@contextlib.contextmanager
def _mounted(device: Path, path: Path, *options: str) -> Iterator[None]:
    _command("mount", "-t", "ext4", *options, str(device), str(path))
    try:
        yield
    finally:
        # What is at the path may have been unmounted by others (`wherry reset`), or be mounted more than once.
        while mounts.is_mount_point(path):
            unmount(path)


def unmount(path: Path) -> None:
    """Unmount, also what somebody still has open."""
    _command("umount", "--lazy", str(path))


def _command(*argv: str, fine: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode in fine, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout
