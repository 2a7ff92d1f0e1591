"""Commands for what the cluster stores: `wherry snapshot` saves and restores it, `wherry store` moves it to etcd."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from wherry import name_completion, option_checks, options, output
from wherry.errors import OptionError, UsageError, WherryError
from wherry.membership import control_plane, root
from wherry.settings import Settings
from wherry.terminal import confirmed, console

if TYPE_CHECKING:
    from control.storage.archive import Summary

snapshot_app = typer.Typer(no_args_is_help=True, help="Save and restore all objects of the cluster.")
store_app = typer.Typer(no_args_is_help=True, help="Move the cluster to another storage.")


@snapshot_app.command("save")
def snapshot_save(
    path: Annotated[
        Path | None, typer.Argument(help="The file to write. Default: one named after the time.", show_default=False)
    ] = None,
    prefix: options.Prefix = "/",
    name: Annotated[
        str, typer.Option("--name", help="Beginning of the file's name. Default: snapshot.", show_default=False)
    ] = "",
) -> None:
    """Save all objects in one file. The cluster keeps running.

    Without a path the file is in the snapshot folder, and is copied to S3 if a bucket is set.
    """
    from wherry import snapshot

    root()
    if path is not None and name:
        raise UsageError("--name is for a file in the snapshot folder: leave out the path")
    made = asyncio.run(snapshot.save(control_plane(prefix), path, name=name))
    found = made.summary
    console.print(f"{found.path}: {found.keys} keys at revision {found.revision}, {found.size} bytes", soft_wrap=True)
    if made.url:
        console.print(f"copied to {made.url}", soft_wrap=True)
    if made.problem:
        raise WherryError(f"the snapshot is complete, and was not copied to S3: {made.problem}")


@snapshot_app.command("restore")
def snapshot_restore(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SNAPSHOT",
            help="Path of a snapshot, its name in the snapshot folder or in S3, or s3://BUCKET/FOLDER/NAME.",
            show_default=False,
            autocompletion=name_completion.snapshots,
        ),
    ],
    prefix: options.Prefix = "/",
    *,
    yes: options.Yes = False,
) -> None:
    """Replace all objects by those of a snapshot. Restarts the daemons; containers keep running."""
    from wherry import snapshot

    root()
    settings = control_plane(prefix)

    def confirm(found: Summary) -> None:
        question = f"Replace all objects of the cluster by the {found.keys} keys of revision {found.revision}?"
        if not yes and not confirmed(question):
            raise typer.Exit(1)

    revision = asyncio.run(snapshot.restore(settings, what, confirm))
    console.print(f"restored; the cluster goes on at revision {revision}")


@snapshot_app.command("list")
def snapshot_list(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """List the snapshots in the snapshot folder and in S3."""
    from wherry import snapshot_catalog

    output.check(format)
    root()
    found = asyncio.run(snapshot_catalog.entries(control_plane(prefix)))
    output.show(found, snapshot_catalog.COLUMNS, format, snapshot_catalog.as_data)


@snapshot_app.command("delete")
def snapshot_delete(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of snapshots.", show_default=False, autocompletion=name_completion.snapshots),
    ],
    prefix: options.Prefix = "/",
) -> None:
    """Delete snapshots, in the snapshot folder and in S3."""
    from wherry import snapshot_catalog

    root()
    _print_deleted(asyncio.run(snapshot_catalog.delete(control_plane(prefix), names)))


@snapshot_app.command("prune")
def snapshot_prune(
    prefix: options.Prefix = "/",
    *,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", help="Number of scheduled snapshots to keep. Default: the retention.", show_default=False
        ),
    ] = None,
) -> None:
    """Delete surplus scheduled snapshots.

    The newest ones of this machine stay, in the snapshot folder and in S3; snapshots of other names are not touched.
    """
    from wherry import snapshot_catalog

    root()
    settings = control_plane(prefix)
    kept = settings.snapshot_options.retention if keep is None else keep
    if kept < 0:
        raise UsageError(f"--keep {keep}: it is at least 0")
    _print_deleted(asyncio.run(snapshot_catalog.prune(settings, kept)))


def _print_deleted(paths: list[str]) -> None:
    for path in paths:
        console.print(f"deleted {path}", soft_wrap=True)


@store_app.command("migrate")
def store_migrate(
    etcd_servers: options.EtcdServers,
    prefix: options.Prefix = "/",
    etcd_cafile: options.EtcdCafile = "",
    etcd_certfile: options.EtcdCertfile = "",
    etcd_keyfile: options.EtcdKeyfile = "",
    etcd_prefix: options.EtcdPrefix = "/registry",
) -> None:
    """Move all objects from SQLite to an empty etcd. Containers keep running."""
    from wherry import store_migration

    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and k != "prefix"}
    root()
    settings = control_plane(prefix)
    wanted = msgspec.structs.replace(settings, store="etcd", **given)
    found = option_checks.problems(wanted, wanted.node_ip)
    if found := [problem for problem in found if problem.option.startswith(("etcd-", "store"))]:
        raise OptionError(found)
    keys = asyncio.run(store_migration.migrate(settings, wanted))
    console.print(f"moved {keys} keys to etcd; the cluster is stored there from now on")
