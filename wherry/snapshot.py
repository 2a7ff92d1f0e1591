"""Snapshots of what the cluster stores, and its move from SQLite to etcd.

A snapshot is one file, the same for both engines (control/storage/archive.py). Saving needs no pause. Restoring and moving
do, for a server must not work on data that changes under it: they stop this machine's daemons and start them again, while
containers continue; SQLite's lock and, for etcd, a question to the other servers' leases keep everybody else out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from control.storage import archive
from control.storage import snapshot as sqlite_snapshot
from control.storage.archive import Summary
from control.storage.store import StoreError
from kube.clock import format_time
from wherry import daemons
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.output import Column, size
from wherry.settings import Settings
from wherry.snapshot_files import copy_in, private_folder, publish, require_new
from wherry.storage import opened_etcd, wherry_errors

SUFFIX = ".db"
MOVED = ".moved-to-etcd"


COLUMNS: Sequence[Column[Summary]] = (
    Column("PATH", lambda found: str(found.path)),
    Column("TAKEN", lambda found: format_time(datetime.fromtimestamp(found.taken, UTC))),
    Column("KEYS", lambda found: str(found.keys)),
    Column("REVISION", lambda found: str(found.revision)),
    Column("SIZE", lambda found: size(found.size)),
)


def as_data(found: Summary) -> dict[str, object]:
    """Return a snapshot's summary as JSON data; the size in bytes."""
    taken = format_time(datetime.fromtimestamp(found.taken, UTC))
    return {
        "path": str(found.path),
        "taken": taken,
        "keys": found.keys,
        "revision": found.revision,
        "size": found.size,
    }


async def save(settings: Settings, path: Path | None = None) -> Summary:
    """Write a snapshot to `path`, or to a file named after the time in the snapshot folder."""
    folder = settings.layout.snapshots
    path = path or folder / f"snapshot-{datetime.now(UTC):%Y%m%d-%H%M%S}{SUFFIX}"
    with wherry_errors(), private_folder(folder) as private:
        require_new(path)
        made = private / path.name
        if settings.store == "etcd":
            async with opened_etcd(settings) as store:
                await store.snapshot(made)
        else:
            database = control_config(settings).database
            if not database.exists():
                raise WherryError(f"there is no database {database}")
            await asyncio.to_thread(sqlite_snapshot.write_snapshot, database, made)
        summary = await asyncio.to_thread(archive.summary, made)
        await asyncio.to_thread(publish, made, path)
    return replace(summary, path=path)


def snapshots(settings: Settings) -> list[Summary]:
    """Return the snapshots in the snapshot folder, the oldest first."""
    with wherry_errors():
        found = [archive.summary(path) for path in settings.layout.snapshots.glob(f"*{SUFFIX}")]
    return sorted(found, key=lambda summary: (summary.taken, summary.path))


async def restore(settings: Settings, path: Path) -> int:
    """Make the cluster what a snapshot has and return the revision from which it continues."""
    with wherry_errors(), private_folder(settings.layout.snapshots) as private:
        copy = await asyncio.to_thread(copy_in, path, private)
        with _named(copy, path):
            await asyncio.to_thread(archive.summary, copy)  # validate the file before anything is stopped
            async with _stopped(settings):
                if settings.store == "etcd":
                    from control.storage.etcd import restore as etcd_restore

                    async with opened_etcd(settings) as store:
                        return await etcd_restore.restore(store, copy)
                return await asyncio.to_thread(sqlite_snapshot.restore, copy, control_config(settings).database)


@contextlib.contextmanager
def _named(copy: Path, path: Path) -> Iterator[None]:
    """Name the snapshot that was copied in errors about its copy."""
    try:
        yield
    except StoreError as error:
        raise WherryError(str(error).replace(str(copy), str(path))) from error


async def migrate(settings: Settings, wanted: Settings) -> int:
    """Move everything from SQLite to the etcd that `wanted` names and return the number of keys."""
    from control.storage.etcd import restore as etcd_restore

    database = control_config(settings).database
    if settings.store != "sqlite" or not database.exists():
        raise WherryError("this cluster is not stored in SQLite: there is nothing to move")
    carried = database.with_name("migration" + SUFFIX)
    with wherry_errors():
        async with opened_etcd(wanted):
            pass  # connect before anything is stopped
        async with _stopped(settings):
            carried.unlink(missing_ok=True)
            await asyncio.to_thread(sqlite_snapshot.write_snapshot, database, carried)
            summary = await asyncio.to_thread(archive.summary, carried)
            async with opened_etcd(wanted) as store:
                await etcd_restore.restore(store, carried, empty=True)
            wanted.save()
            # What was moved must not be taken for the cluster again, and is kept all the same.
            os.replace(carried, database.with_name(database.name + MOVED))
            for suffix in ("", "-wal", "-shm", ".reserve"):
                database.with_name(database.name + suffix).unlink(missing_ok=True)
    return summary.keys


@contextlib.asynccontextmanager
async def _stopped(settings: Settings) -> AsyncIterator[None]:
    """Stop the daemons, if they run, and start them again with the settings that are saved then."""
    running = any((await daemons.running(settings)).values())
    if running:
        await daemons.stop(settings)
    try:
        yield
    finally:
        if running:
            await daemons.start(settings)
