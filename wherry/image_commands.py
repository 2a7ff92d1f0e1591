"""Commands for images in this machine's containerd: `wherry image list|load|save|rm|prune`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer

from wherry import name_completion, options, output
from wherry.errors import WherryError
from wherry.membership import installed, root
from wherry.progress import step
from wherry.settings import Settings
from wherry.terminal import confirmed, console, errors

image_app = typer.Typer(no_args_is_help=True, help="Manage images in this machine's containerd.")
_ARCHIVE = re.compile(r".\.(?:tar(?:\.(?:gz|xz|zst|bz2))?|t(?:gz|xz|zst|bz2?))\Z", re.IGNORECASE)
"""Name of an archive, compressed or not; an image's name rarely ends so."""
Images = Annotated[
    list[str], typer.Argument(help="Names of images.", show_default=False, autocompletion=name_completion.images)
]


def _machine(prefix: str) -> Settings:
    """Return this machine's settings; WherryError without root, a cluster or a container runtime that answers."""
    from wherry import containerd

    root()
    settings = installed(prefix)
    containerd.require_running(settings)
    return settings


@image_app.command("load")
def image_load(
    what: Annotated[
        str,
        typer.Argument(
            help="Archive (docker save, OCI layout): NAME.tar (also .tar.gz, .tar.zst), or a path that begins with / or ./. "
            "Otherwise an image of the local Docker engine.",
            show_default=False,
        ),
    ],
    prefix: options.Prefix = "/",
) -> None:
    """Load an image into containerd without a registry."""
    from wherry import containerd, image_loading

    root()
    if not what:
        raise WherryError("name an archive or an image")
    if what.startswith(("/", "./", "../")) or _ARCHIVE.search(what):
        containerd.require_archive(Path(what))
        settings = _machine(prefix)
        with step(f"load {what}", to=errors) as progress:
            names = asyncio.run(image_loading.load_archive(settings, Path(what), progress))
    else:
        settings = _machine(prefix)
        # Never a file: others may have put one of an image's name into the current folder.
        try:
            with step(f"load {what} from the Docker engine", to=errors) as progress:
                names = asyncio.run(image_loading.load_from_docker(settings, what, progress))
        except WherryError as error:
            hint = f". For the archive of this name: ./{what}" if Path(what).is_file() else ""
            raise WherryError(f"{error}{hint}") from error
    for name in names:
        console.print(name, soft_wrap=True)


@image_app.command("list")
def image_list(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """List images with their sizes and digests."""
    from wherry import images

    output.check(format)
    output.show(asyncio.run(images.listed(_machine(prefix))), images.COLUMNS, format, images.as_data)


@image_app.command("save")
def image_save(
    path: Annotated[Path, typer.Argument(help="The archive to write (OCI layout).", show_default=False)],
    names: Images,
    prefix: options.Prefix = "/",
) -> None:
    """Save images in an archive."""
    from wherry import images

    settings = _machine(prefix)
    with step(f"save {path}", to=errors) as progress:
        asyncio.run(images.save(settings, path, names, progress))


@image_app.command("rm")
def image_remove(names: Images, prefix: options.Prefix = "/") -> None:
    """Remove images. Containers that use them keep running."""
    from wherry import images

    for name in asyncio.run(images.remove(_machine(prefix), names)):
        console.print(f"removed {name}", soft_wrap=True)


@image_app.command("prune")
def image_prune(prefix: options.Prefix = "/", *, yes: options.Yes = False) -> None:
    """Remove all images that no container uses."""
    from wherry import images

    settings = _machine(prefix)
    unused = asyncio.run(images.unused(settings))
    if not unused:
        console.print("every image is used")
        return
    if not yes:
        for image in unused:
            console.print(f"{image.name}  {image.size}", soft_wrap=True)
        if not confirmed("Remove 1 image?" if len(unused) == 1 else f"Remove {len(unused)} images?"):
            raise typer.Exit(1)
    for name in asyncio.run(images.remove(settings, [image.name for image in unused])):
        console.print(f"removed {name}", soft_wrap=True)
