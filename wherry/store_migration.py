"""Moves what the cluster stores from SQLite to etcd, while this machine's daemons are stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from control.storage import archive, database_folder
from control.storage import snapshot as sqlite_snapshot
from wherry import disk_space
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.progress import size_of, step
from wherry.settings import Settings
from wherry.snapshot import KEYS, stopped, working_parent
from wherry.snapshot_files import working_folder
from wherry.snapshot_names import SUFFIX
from wherry.storage import opened_etcd, wherry_errors
from wherry.terminal import errors

MOVED = ".moved-to-etcd"


async def migrate(settings: Settings, wanted: Settings) -> int:
    """Move everything from SQLite to the etcd that `wanted` names and return the number of keys."""
    from control.storage.etcd import restore as etcd_restore

    database = control_config(settings).database
    if settings.store != "sqlite" or not database.exists():
        raise WherryError("this cluster is not stored in SQLite: there is nothing to move")
    with wherry_errors(), working_folder(working_parent(settings)) as private:
        with step("reach etcd", to=errors):
            async with opened_etcd(wanted):
                pass  # before anything is stopped
        async with stopped(settings):
            carried = await _carried(database, private)
            summary = await asyncio.to_thread(archive.summary, carried)
            with step("write the objects to etcd", KEYS, to=errors) as progress:
                async with opened_etcd(wanted) as store:
                    await etcd_restore.restore(store, carried, empty=True, count=progress.set)
            wanted.save()
            # What was moved must not be taken for the cluster again, and is kept all the same.
            with database_folder.opened(database.parent) as folder:
                await asyncio.to_thread(database_folder.move_in, carried, folder, f"{database.name}{MOVED}")
                names = (f"{database.name}{suffix}" for suffix in ("", "-wal", "-shm", ".reserve"))
                database_folder.remove(folder, *names)
    return summary.keys


async def _carried(database: Path, private: Path) -> Path:
    """Write a snapshot of a database that no process uses into the working folder, and return it."""
    copy, carried = private / database.name, private / f"migration{SUFFIX}"
    partial = carried.with_name(carried.name + ".partial")
    with step("copy the database", to=errors) as progress, size_of(partial, progress):
        progress.total = database_folder.size(database)
        disk_space.require_room(private, 2 * progress.total)
        await asyncio.to_thread(database_folder.copy_database, database, copy)
        await asyncio.to_thread(sqlite_snapshot.write_snapshot, copy, carried)
        progress.set(size := carried.stat().st_size, size)
    return carried
