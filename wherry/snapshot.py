"""Snapshots of what the cluster stores.

A snapshot is one file, the same for both engines (control/storage/archive.py). Saving needs no pause. Restoring and moving
to etcd (wherry/store_migration.py) do, for a server must not work on data that changes under it: they stop this machine's
daemons and start them again, while containers continue; SQLite's lock and, for etcd, a question to the other servers' leases
keep everybody else out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from control.storage import archive, database_folder
from control.storage import snapshot as sqlite_snapshot
from control.storage.archive import Summary
from control.storage.store import StoreError
from wherry import cluster, daemons, disk_space, os_errors, snapshot_names, starting
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.progress import Progress, size_of, step
from wherry.s3 import S3
from wherry.settings import Settings
from wherry.snapshot_files import copy_in, open_file, publish, require_new, working_folder
from wherry.storage import opened_etcd, wherry_errors
from wherry.terminal import errors

S3_URL, KEYS = "s3://", "keys"


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that was saved; `url` is empty if it was not copied to S3, and `problem` says why that failed."""

    summary: Summary
    url: str = ""
    problem: str = ""


def working_parent(settings: Settings) -> Path:
    """Return the folder in which this account creates working folders: root trusts no folder of the control plane's account."""
    return settings.layout.state if os.geteuid() == 0 else control_config(settings).data_dir


async def save(settings: Settings, path: Path | None = None, *, name: str = "", scheduled: bool = False) -> Saved:
    """Write a snapshot to `path`, or to a file named after the time in the snapshot folder and to S3."""
    now, options = datetime.now(UTC), settings.snapshot_options
    if path is None:
        file = snapshot_names.scheduled(settings.node_name, now) if scheduled else snapshot_names.manual(name, now)
        path, copied = options.folder / file, bool(options.bucket)
        if options.folder == settings.layout.snapshots:
            options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    else:
        copied = False
    with wherry_errors(), working_folder(working_parent(settings)) as private:
        require_new(path)
        made = private / path.name
        with (
            step("write the snapshot", to=errors) as progress,
            size_of(made.with_name(made.name + ".partial"), progress),
        ):
            await _write(settings, made, path, progress)
            progress.set(size := made.stat().st_size, size)
        summary = await asyncio.to_thread(archive.summary, made)
        await asyncio.to_thread(publish, made, path)
        saved = Saved(replace(summary, path=path))
        # Of the private file: another account may own the folder that it was published in, and replace it there.
        return await _copied(settings, saved, made) if copied else saved


async def copy(settings: Settings, path: Path) -> Saved:
    """Copy a snapshot of the snapshot folder to S3 as `save` does, if a bucket is set; raises WherryError if it is none."""
    with wherry_errors():
        saved = Saved(await asyncio.to_thread(archive.summary, path))
    return await _copied(settings, saved, path) if settings.snapshot_options.bucket else saved


async def _write(settings: Settings, made: Path, path: Path, progress: Progress) -> None:
    """Write the file in the working folder, if that and the folder of `path` have room for it."""

    def require_room(size: int) -> None:
        progress.total = size
        for folder in {found.stat().st_dev: found for found in (path.parent, made.parent)}.values():
            disk_space.require_room(folder, size)

    if settings.store == "etcd":
        from control.storage.etcd.save import save as save_etcd

        async with opened_etcd(settings) as store:
            await save_etcd(store, made, require_room)
        return
    database = control_config(settings).database
    if not database.exists():
        raise WherryError(f"there is no database {database}: `wherry up` creates it")
    require_room(database_folder.size(database))
    await asyncio.to_thread(sqlite_snapshot.write_snapshot, database, made)


async def _copied(settings: Settings, saved: Saved, file: Path) -> Saved:
    """Copy the file of a snapshot to S3; a problem is returned, because the file is complete."""
    summary = saved.summary
    metadata = {"keys": str(summary.keys), "revision": str(summary.revision), "taken": str(int(summary.taken))}
    try:
        async with S3.open(settings.snapshot_options) as s3:
            url = s3.url(summary.path.name)
            with step(f"copy it to {url}", to=errors) as progress:
                progress.total = summary.size
                with open_file(file, follow=False) as opened:
                    await s3.put(summary.path.name, opened, metadata, progress.add)
    except (WherryError, OSError) as error:
        return replace(saved, problem=os_errors.text(error))
    return replace(saved, url=url)


async def restore(settings: Settings, what: str, confirm: Callable[[Summary], None] = lambda found: None) -> int:
    """Make the cluster what a snapshot has and return the revision from which it continues.

    `what` is a path, the name of a file in the snapshot folder or in S3, or s3://BUCKET/FOLDER/NAME. `confirm` is called with
    what was found in it before anything is stopped; what it raises ends the restore.
    """
    with wherry_errors(), working_folder(working_parent(settings)) as private:
        copy = await _fetched(settings, what, private)
        with _named(copy, what):
            confirm(await asyncio.to_thread(archive.summary, copy))  # validated before anything is asked or stopped
            async with stopped(settings):
                return await _restore_objects(settings, copy)


async def _restore_objects(settings: Settings, copy: Path) -> int:
    what = "restore the objects"
    if settings.store == "etcd":
        from control.storage.etcd import restore as etcd_restore

        with step(what, KEYS, to=errors) as progress:
            async with opened_etcd(settings) as store:
                return await etcd_restore.restore(store, copy, count=progress.set)
    database = control_config(settings).database
    folder = Path(tempfile.mkdtemp(dir=copy.parent))
    with step(what, to=errors) as progress, size_of(folder / f"{database.name}.restoring.partial", progress):
        progress.total = copy.stat().st_size
        disk_space.require_room(folder, progress.total + database_folder.size(database))
        revision = await asyncio.to_thread(sqlite_snapshot.restore, copy, database, folder)
    return revision


def local_file(settings: Settings, what: str) -> Path | None:
    """Return the path of a snapshot on this machine, None if it can only be in S3; raises WherryError if there is none."""
    options, is_name = settings.snapshot_options, "/" not in what
    path = options.folder / what if is_name else Path(what)
    if what.startswith(S3_URL) or (is_name and options.bucket and not path.exists()):
        return None
    if path.exists() or path.is_symlink():
        return path
    if not is_name:
        raise WherryError(f"there is no snapshot {what}")
    hint = f". For the file of this name: ./{what}" if Path(what).is_file() else ""
    raise WherryError(f"there is no snapshot {what} in {options.folder}{hint}")


async def _fetched(settings: Settings, what: str, private: Path) -> Path:
    """Copy a snapshot from where it is into the working folder."""
    options = settings.snapshot_options
    is_name, path = "/" not in what, local_file(settings, what)
    if path is not None:
        disk_space.require_room(private, path.stat().st_size if path.is_file() else 0)
        with step("read the snapshot", to=errors) as progress:
            progress.total = path.stat().st_size
            return await asyncio.to_thread(copy_in, path, private, progress.add, follow=not is_name)
    name = what
    if what.startswith(S3_URL):
        bucket, _, key = what.removeprefix(S3_URL).partition("/")
        folder, _, name = key.rpartition("/")
        options = replace(options, bucket=bucket, bucket_folder=folder)
    if not name or name.startswith("."):
        raise WherryError(f"{what}: write s3://BUCKET/FOLDER/NAME")
    async with S3.open(options) as s3:
        found = next((each for each in await s3.listed() if each.name == name), None)
        if found is None:
            raise WherryError(f"there is no snapshot {name} in {options.folder} and {s3.url('')}")
        disk_space.require_room(private, found.size)
        with step(f"fetch {s3.url(name)}", to=errors) as progress:
            progress.total = found.size
            await s3.get(name, private / name, found.size, progress.add)
    return private / name


@contextlib.contextmanager
def _named(copy: Path, path: str) -> Iterator[None]:
    """Name the snapshot that was copied in errors about its copy."""
    try:
        yield
    except StoreError as error:
        raise WherryError(str(error).replace(str(copy), path)) from error


@contextlib.asynccontextmanager
async def stopped(settings: Settings) -> AsyncIterator[None]:
    """Stop the daemons, if they run; start them again with the settings that are saved then, and wait for the API server."""
    running = any((await daemons.running(settings)).values())
    if running:
        with step("stop the daemons", to=errors):
            await daemons.stop(settings)
    try:
        yield
    finally:
        if running:
            with step("start the daemons", to=errors):
                await daemons.start(settings)
    if running:
        with step("wait for the API server", to=errors):
            async with cluster.admin(settings) as client:
                await cluster.wait_ready(client, settings, starting.ready_seconds(settings))
