"""Snapshots of what the cluster stores, and its move from SQLite to etcd.

A snapshot is one file, the same for both engines (control/storage/archive.py). Saving needs no pause. Restoring and moving
do, for a server must not work on data that changes under it: they stop this machine's daemons and start them again, while
containers continue; SQLite's lock and, for etcd, a question to the other servers' leases keep everybody else out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from control.storage import archive
from control.storage import snapshot as sqlite_snapshot
from control.storage.archive import Summary
from wherry import daemons
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.storage import opened_etcd, wherry_errors

SUFFIX = ".db"
MOVED = ".moved-to-etcd"


async def save(settings: Settings, path: Path | None = None) -> Summary:
    """Write a snapshot to `path`, or to a file named after the time in the snapshot folder."""
    if path is None:
        folder = settings.layout.snapshots
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"snapshot-{datetime.now(UTC):%Y%m%d-%H%M%S}{SUFFIX}"
    if path.exists():
        raise WherryError(f"{path} exists: name another file")
    with wherry_errors():
        if settings.store == "etcd":
            async with opened_etcd(settings) as store:
                await store.snapshot(path)
        else:
            database = control_config(settings).database
            if not database.exists():
                raise WherryError(f"there is no database {database}")
            await asyncio.to_thread(sqlite_snapshot.write_snapshot, database, path)
        return await asyncio.to_thread(archive.summary, path)


def snapshots(settings: Settings) -> list[Summary]:
    """Return the snapshots in the snapshot folder, the oldest first."""
    with wherry_errors():
        found = [archive.summary(path) for path in settings.layout.snapshots.glob(f"*{SUFFIX}")]
    return sorted(found, key=lambda summary: (summary.taken, summary.path))


async def restore(settings: Settings, path: Path) -> int:
    """Make the cluster what a snapshot has and return the revision from which it continues."""
    with wherry_errors():
        await asyncio.to_thread(archive.summary, path)  # validate the file before anything is stopped
        async with _stopped(settings):
            if settings.store == "etcd":
                from control.storage.etcd import restore as etcd_restore

                async with opened_etcd(settings) as store:
                    return await etcd_restore.restore(store, path)
            return await asyncio.to_thread(sqlite_snapshot.restore, path, control_config(settings).database)


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
