"""Rotates containers' logs: renames, has the runtime reopen the file, compresses, removes the oldest.

This is upstream's container log manager, with its names: `0.log` becomes `0.log.20260102-150405`, the ones before it are
compressed to `.gz` (the newest stays plain, for its readers), and with the file being written there are at most
containerLogMaxFiles. Sizes are read at every containerLogMonitorInterval (10 s): the kernel has no event for "grown past".

Each log is rotated in a task of its own, a few at a time and fairly by namespace: a runtime that does not reopen one log delays
no others. An attached client that does not read blocks that call, so its session is ended (attached_clients.py). Whether a
call without a response has begun a new file is unknown: the rotated one gets its name back only if there is none.
Compressions have threads of their own, in round robin over namespaces, so that they take none from other files of the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from agent.attached_clients import AttachedClients
from agent.interfaces import Pods
from agent.keyed_tasks import KeyedTasks
from agent.limiter import Limiter
from agent.runtime_records import ContainerRecord
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.clock import Clock
from kube.serving.fair_threads import FairThreads

log = logging.getLogger(__name__)

_COMPRESSED, _TEMPORARY = ".gz", ".tmp"
AT_ONCE = 4
"""Logs that are rotated at the same time; rotations that take long do not count."""
COMPRESSIONS = 2
"""Logs that are compressed at the same time, in threads of their own: a log of some 100 MB takes a second of CPU time."""
WAIT_SECONDS = 5.0
"""Time that a round waits for its rotations; those that take longer continue."""


class LogRotation:
    """Rotates the logs of running containers once they are larger than `max_bytes`; `period` in seconds."""

    def __init__(
        self,
        runtime: RuntimeService,
        pods: Pods,
        clock: Clock,
        attached: AttachedClients,
        *,
        max_bytes: int,
        max_files: int,
        period: float,
    ) -> None:
        self._attached = attached
        self._tasks, self._limiter = KeyedTasks(), Limiter(AT_ONCE)
        self._compressions = FairThreads(COMPRESSIONS, "log-compression")
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._period = period

    async def run(self) -> None:
        """Rotate logs periodically until cancelled."""
        try:
            while self._max_bytes > 0:
                await self._clock.sleep(self._period)
                await self.rotate_all()
        finally:
            await self._tasks.close()

    async def rotate_all(self) -> None:
        """Begin to rotate the log of every running container where it is too large; wait for a few seconds at most."""
        for view in self._pods.views():
            namespace = view.pod.metadata.namespace or ""
            for record in view.containers:
                if record.running and record.log_path:
                    self._tasks.begin(f"log of container {record.id}", partial(self._try, record, namespace))
        await self._tasks.settle(WAIT_SECONDS)

    async def _try(self, record: ContainerRecord, namespace: str) -> None:
        try:
            async with self._limiter.slot(0, namespace):
                await self._rotate(record, namespace)
        except (OSError, CRIError) as error:
            log.warning("rotating the log of container %s: %s", record.id, error)

    async def _rotate(self, record: ContainerRecord, namespace: str) -> None:
        path = Path(record.log_path)
        try:
            status = await asyncio.to_thread(path.lstat)
        except FileNotFoundError:
            # Renamed by a rotation that did not get further: the runtime has to begin a file.
            await self._reopen(record.id)
            return
        if not stat.S_ISREG(status.st_mode) or status.st_size < self._max_bytes:
            return
        stamp = self._clock.now().strftime("%Y%m%d-%H%M%S")
        for old in await asyncio.to_thread(tidy, path, self._max_files):
            await asyncio.wrap_future(self._compressions.submit(namespace, partial(compress, old)))
        rotated = await asyncio.to_thread(path.rename, path.with_name(f"{path.name}.{stamp}"))
        try:
            await self._reopen(record.id)
        except CRIError:
            await asyncio.to_thread(_rename_back, rotated, path)
            raise

    async def _reopen(self, container_id: str) -> None:
        with self._attached.unblocked(container_id):
            await self._runtime.reopen_container_log(container_id)


def _rename_back(rotated: Path, path: Path) -> None:
    """Give a rotated log its name back, unless the runtime has begun a new file, which would be deleted by that."""
    with contextlib.suppress(FileExistsError):
        os.link(rotated, path, follow_symlinks=False)
        rotated.unlink()


def tidy(path: Path, max_files: int) -> list[Path]:
    """Remove what earlier rotations of a log left, so that one more file fits; return what is left to compress."""
    rotated = []
    for found in sorted(path.parent.glob(f"{path.name}.*")):
        if found.is_symlink() or found.suffix == _TEMPORARY or (found.suffix != _COMPRESSED and _gz(found).exists()):
            found.unlink()
        else:
            rotated.append(found)
    # One is being written and one is about to be made.
    keep = max(0, max_files - 2)
    for old in rotated[: max(0, len(rotated) - keep)]:
        old.unlink()
    return [found for found in rotated[max(0, len(rotated) - keep) :] if found.suffix != _COMPRESSED]


def remove_logs(path: Path) -> None:
    """Remove a log with all its rotated files."""
    for found in (path, *path.parent.glob(f"{path.name}.*")):
        with contextlib.suppress(FileNotFoundError):
            found.unlink()


def compress(path: Path) -> None:
    """Compress a rotated log. Raise OSError for a link and what is no file: others may write the folder."""
    packed_name = _gz(path).name
    temporary = packed_name + _TEMPORARY
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)

    try:
        with open(path.name, "rb", opener=opener) as plain:
            found = os.fstat(plain.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "a rotated log is no regular file", str(path))
            with _removed_on_failure(temporary, folder), open(temporary, "xb", opener=opener) as raw:
                os.fchmod(raw.fileno(), found.st_mode & 0o777)
                with gzip.open(raw, "wb", compresslevel=1) as packed:
                    shutil.copyfileobj(plain, packed, 1 << 20)
        os.rename(temporary, packed_name, src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink(path.name, dir_fd=folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _removed_on_failure(name: str, folder: int) -> Iterator[None]:
    """Have what was written so far not take the last space of a full disk."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _gz(path: Path) -> Path:
    return path.with_name(path.name + _COMPRESSED)
