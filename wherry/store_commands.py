"""Commands for what the cluster stores: `wherry snapshot` saves and restores it, `wherry store` moves it to etcd."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wherry import settings as saved
from wherry.membership import Prefix, control_plane, root
from wherry.progress import console
from wherry.settings import Settings

snapshot_app = typer.Typer(no_args_is_help=True, help="Copies of all that the cluster stores.")
store_app = typer.Typer(no_args_is_help=True, help="Where the cluster stores its objects.")


@snapshot_app.command("save")
def snapshot_save(
    path: Annotated[Path | None, typer.Argument(help="The file to write; one named after the time by default.")] = None,
    prefix: Prefix = "/",
) -> None:
    """Save all objects in one file, while everything runs."""
    from wherry import snapshot

    root()
    made = asyncio.run(snapshot.save(control_plane(prefix), path))
    console.print(f"{made.path}: {made.keys} keys at revision {made.revision}, {made.size} bytes", soft_wrap=True)


@snapshot_app.command("restore")
def snapshot_restore(
    path: Annotated[Path, typer.Argument(help="A file that `wherry snapshot save` wrote.")],
    prefix: Prefix = "/",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Make the cluster what a snapshot has. Its daemons are stopped for a moment; containers run on."""
    from wherry import snapshot

    root()
    settings = control_plane(prefix)
    if not yes and not typer.confirm("Replace all that the cluster has stored since?"):
        raise typer.Exit(1)
    revision = asyncio.run(snapshot.restore(settings, path))
    console.print(f"restored; the cluster goes on at revision {revision}")


@snapshot_app.command("list")
def snapshot_list(prefix: Prefix = "/") -> None:
    """List the snapshots in the snapshot folder."""
    from wherry import snapshot

    root()
    for found in snapshot.snapshots(control_plane(prefix)):
        console.print(f"{found.path}  {found.keys} keys  revision {found.revision}  {found.size} bytes", soft_wrap=True)


@store_app.command("migrate")
def store_migrate(
    etcd_servers: Annotated[str, typer.Option(help="URLs of etcd's members, with commas between.")],
    prefix: Prefix = "/",
    etcd_cafile: Annotated[str, typer.Option(help="The CA of etcd's certificates.")] = "",
    etcd_certfile: Annotated[str, typer.Option(help="The certificate to show to etcd.")] = "",
    etcd_keyfile: Annotated[str, typer.Option(help="Its key.")] = "",
    etcd_prefix: Annotated[str, typer.Option(help="The folder of the keys in etcd.")] = "/registry",
) -> None:
    """Move the cluster's objects from SQLite to an etcd that is empty. Containers run on."""
    from wherry import snapshot

    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and k != "prefix"}
    root()
    settings = control_plane(prefix)
    wanted = msgspec.structs.replace(settings, store="etcd", **given)
    saved.check_store(wanted)
    keys = asyncio.run(snapshot.migrate(settings, wanted))
    console.print(f"moved {keys} keys to etcd; the cluster is stored there from now on")
