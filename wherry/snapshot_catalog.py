"""Snapshots in the folder of this machine and in S3: listed, deleted, and pruned to the number that is kept.

Pruning deletes scheduled snapshots of this machine only: members may share a bucket, and other files are a person's.
"""

from __future__ import annotations

import asyncio
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from control.storage import archive
from control.storage.store import Corrupt, StoreError
from kube.clock import format_time
from wherry import snapshot_names
from wherry.errors import WherryError
from wherry.new_files import PARTIAL
from wherry.output import Column, size
from wherry.s3 import S3
from wherry.s3_documents import StoredObject
from wherry.settings import Settings
from wherry.snapshot_names import SUFFIX
from wherry.storage import wherry_errors

MOST_REQUESTS = 8
LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_DIGITS = re.compile("[0-9]{1,18}")
"""Numbers in the metadata of objects, which others may have stored."""
PARTIAL_SECONDS = 3600.0
"""Age of a file that is not written any more: longer than a snapshot may take."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot; `path` may be an s3:// URL, and keys and revision are None if they are not known."""

    name: str
    path: str
    taken: float
    """Seconds since 1970."""
    size: int
    keys: int | None = None
    revision: int | None = None
    problem: str = ""

    @property
    def time(self) -> str:
        return format_time(datetime.fromtimestamp(self.taken, UTC))


COLUMNS: Sequence[Column[Entry]] = (
    Column("NAME", lambda found: found.name),
    Column("TAKEN", lambda found: found.time),
    Column("KEYS", lambda found: (found.problem and "damaged") or _number(found.keys)),
    Column("REVISION", lambda found: _number(found.revision)),
    Column("SIZE", lambda found: size(found.size)),
    Column("PATH", lambda found: found.path),
    Column("PROBLEM", lambda found: found.problem, wide=True),
)


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def as_data(found: Entry) -> dict[str, object]:
    """Return a snapshot as JSON data; the size in bytes."""
    shown: dict[str, object] = {
        "name": found.name,
        "path": found.path,
        "taken": found.time,
        "keys": found.keys,
        "revision": found.revision,
        "size": found.size,
    }
    return {**shown, "problem": found.problem} if found.problem else shown


def local(settings: Settings) -> list[Entry]:
    """Return the snapshots in the folder of this machine, the oldest first; blocks."""
    found = []
    with wherry_errors():
        for path in _folder(settings).glob(f"[!.]*{SUFFIX}"):
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue  # deleted meanwhile
            try:
                if not stat.S_ISREG(facts.st_mode):
                    raise Corrupt(f"{path} is no snapshot: it is not a regular file")
                summary = archive.summary(path)
                found.append(Entry(path.name, str(path), facts.st_mtime, facts.st_size, summary.keys, summary.revision))
            except StoreError as error:
                found.append(Entry(path.name, str(path), facts.st_mtime, facts.st_size, problem=str(error)))
    return sorted(found, key=lambda entry: (entry.taken, entry.name))


def _folder(settings: Settings) -> Path:
    """Return the snapshot folder, which need not exist; raises WherryError if a file has its name."""
    folder = settings.snapshot_options.folder
    if folder.exists() and not folder.is_dir():
        raise WherryError(f"{folder} is no folder: remove the file, or choose another folder with --snapshot-folder")
    return folder


async def remote(settings: Settings) -> list[Entry]:
    """Return the snapshots in S3, the oldest first, none if no bucket is set; raises S3Error."""
    if not settings.snapshot_options.bucket:
        return []
    limit = asyncio.Semaphore(MOST_REQUESTS)
    async with S3.open(settings.snapshot_options) as s3:

        async def entry(stored: StoredObject) -> Entry:
            async with limit:
                metadata = await s3.metadata(stored.name)
            numbers = {name: int(text) for name, text in metadata.items() if _DIGITS.fullmatch(text)}
            taken = float(numbers.get("taken", stored.changed))
            if taken > LATEST:
                taken = stored.changed
            keys, revision = numbers.get("keys"), numbers.get("revision")
            return Entry(stored.name, s3.url(stored.name), taken, stored.size, keys, revision)

        objects = [each for each in await s3.listed() if each.name.endswith(SUFFIX)]
        found = await asyncio.gather(*map(entry, objects))
    return sorted(found, key=lambda entry: (entry.taken, entry.name))


async def entries(settings: Settings) -> list[Entry]:
    """Return all snapshots: those of this machine, then those in S3."""
    return [*await asyncio.to_thread(local, settings), *await remote(settings)]


async def delete(settings: Settings, names: Sequence[str]) -> list[str]:
    """Delete snapshots by name, in the folder and in S3, and return their paths.

    Raises WherryError before anything is deleted if there is none of a name.
    """
    options, doomed = settings.snapshot_options, dict.fromkeys(names)
    for name in doomed:
        if "/" in name or name.startswith(".") or not name.endswith(SUFFIX):
            raise WherryError(f"{name} is no name of a snapshot: `wherry snapshot list` shows the names")
    folder = _folder(settings)
    here = {name: path for name in doomed if (path := folder / name).is_file()}
    deleted = []
    with wherry_errors():
        if not options.bucket:
            _require_all(doomed.keys() - here.keys())
            there: set[str] = set()
        else:
            async with S3.open(options) as s3:
                there = {each.name for each in await s3.listed()} & doomed.keys()
                _require_all(doomed.keys() - here.keys() - there)
                for name in sorted(there):
                    await s3.delete(name)
                    deleted.append(s3.url(name))
        for path in here.values():
            path.unlink(missing_ok=True)
            deleted.append(str(path))
    return deleted


def _require_all(missing: set[str]) -> None:
    if missing:
        raise WherryError(f"there is no snapshot {min(missing)}: `wherry snapshot list` shows the names")


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


async def prune(settings: Settings, kept: int, *, newest: str = "", in_bucket: bool = True) -> list[str]:
    """Delete scheduled snapshots of this machine that are more than those to keep; return their paths.

    `newest` is the name of the one that was just taken.
    """
    options, node, folder = settings.snapshot_options, settings.node_name, _folder(settings)
    deleted = []
    with wherry_errors():
        names = [path.name for path in folder.glob(f"*{SUFFIX}")]
        for name in snapshot_names.surplus(names, node, kept, newest):
            (folder / name).unlink(missing_ok=True)
            deleted.append(str(folder / name))
        for path in folder.glob(f"*{SUFFIX}{PARTIAL}"):  # of a process that was killed
            if snapshot_names.is_scheduled(path.name.removesuffix(PARTIAL), node) and _age(path) > PARTIAL_SECONDS:
                path.unlink(missing_ok=True)
        if options.bucket and in_bucket:
            async with S3.open(options) as s3:
                there = [each.name for each in await s3.listed()]
                for name in snapshot_names.surplus(there, node, kept, newest):
                    await s3.delete(name)
                    deleted.append(s3.url(name))
    return deleted
