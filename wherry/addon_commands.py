"""The command for addons: `wherry addons list`."""

from __future__ import annotations

import asyncio

import typer

from wherry import options, output
from wherry.membership import control_plane, root
from wherry.settings import Settings

addons_app = typer.Typer(no_args_is_help=True, help="Show the addons of the cluster.")


@addons_app.callback()
def _addons() -> None:
    """Show the addons of the cluster."""


@addons_app.command("list")
def addons_list(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """List addons with their files, states and last errors."""
    output.check(format)
    root()
    asyncio.run(_list(control_plane(prefix), format))


async def _list(settings: Settings, format: str) -> None:
    from wherry import addon_list, cluster

    async with cluster.admin(settings) as client:
        found = await addon_list.listed(settings, client)
    output.show(found, addon_list.COLUMNS, format, addon_list.as_data)
