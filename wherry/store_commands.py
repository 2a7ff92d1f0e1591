"""Commands for what the cluster stores: `wherry snapshot` saves and restores it, `wherry store` moves it to etcd."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wherry import options, output
from wherry import settings as saved
from wherry.membership import control_plane, root
from wherry.progress import console
from wherry.settings import Settings

snapshot_app = typer.Typer(no_args_is_help=True, help="Save and restore all objects of the cluster.")
store_app = typer.Typer(no_args_is_help=True, help="Move the cluster to another storage.")


@snapshot_app.command("save")
def snapshot_save(
    path: Annotated[
        Path | None, typer.Argument(help="The file to write. Default: one named after the time.", show_default=False)
    ] = None,
    prefix: options.Prefix = "/",
) -> None:
    """Save all objects in one file. The cluster keeps running."""
    from wherry import snapshot

    root()
    made = asyncio.run(snapshot.save(control_plane(prefix), path))
    console.print(f"{made.path}: {made.keys} keys at revision {made.revision}, {made.size} bytes", soft_wrap=True)


@snapshot_app.command("restore")
def snapshot_restore(
    path: Annotated[Path, typer.Argument(help="A file that `wherry snapshot save` wrote.")],
    prefix: options.Prefix = "/",
    *,
    yes: options.Yes = False,
) -> None:
    """Replace all objects by those of a snapshot. Restarts the daemons; containers keep running."""
    from wherry import snapshot

    root()
    settings = control_plane(prefix)
    if not yes and not typer.confirm("Replace all that the cluster has stored since?"):
        raise typer.Exit(1)
    revision = asyncio.run(snapshot.restore(settings, path))
    console.print(f"restored; the cluster goes on at revision {revision}")


@snapshot_app.command("list")
def snapshot_list(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """List the snapshots in the snapshot folder."""
    from wherry import snapshot

    output.check(format)
    root()
    output.show(snapshot.snapshots(control_plane(prefix)), snapshot.COLUMNS, format, snapshot.as_data)


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
    from wherry import snapshot

    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and k != "prefix"}
    root()
    settings = control_plane(prefix)
    wanted = msgspec.structs.replace(settings, store="etcd", **given)
    saved.check_store(wanted)
    keys = asyncio.run(snapshot.migrate(settings, wanted))
    console.print(f"moved {keys} keys to etcd; the cluster is stored there from now on")
