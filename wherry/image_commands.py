"""Commands for images in this machine's containerd: `wherry image load` and `wherry image list`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from wherry.membership import Prefix, installed, root
from wherry.progress import console

image_app = typer.Typer(no_args_is_help=True, help="Images in this machine's containerd.")


@image_app.command("load")
def image_load(
    what: Annotated[
        str, typer.Argument(help="An archive (docker save, OCI layout), or an image of the Docker engine.")
    ],
    prefix: Prefix = "/",
) -> None:
    """Bring an image into containerd without a registry."""
    from wherry import containerd

    root()
    settings = installed(prefix)
    if Path(what).exists() or what.endswith(".tar"):
        names = asyncio.run(containerd.load_archive(settings, Path(what)))
    else:
        names = asyncio.run(containerd.load_from_docker(settings, what))
    for name in names:
        console.print(name)


@image_app.command("list")
def image_list(prefix: Prefix = "/") -> None:
    """List the images of containerd."""
    from wherry import containerd

    for name in asyncio.run(containerd.image_names(installed(prefix))):
        console.print(name)
