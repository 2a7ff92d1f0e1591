"""Commands for machines without Internet access: `wherry bundle create|load`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from wherry import options, os_errors
from wherry.errors import UsageError, WherryError
from wherry.membership import installed, root
from wherry.progress import position_in, step
from wherry.terminal import console, errors

if TYPE_CHECKING:
    from wherry.bundle import Manifest

bundle_app = typer.Typer(no_args_is_help=True, help="Bundle packages, wheels and images for airgap.")


@bundle_app.command("create")
def bundle_create(
    path: Annotated[Path, typer.Argument(help="The bundle to write.", show_default=False)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Debian packages (NAME.deb), wheels (NAME.whl) and archives of images (NAME.tar).", show_default=False
        ),
    ] = None,
    prefix: options.Prefix = "/",
    *,
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image", help="Image of this machine's containerd. May be repeated. Default: none.", show_default=False
        ),
    ] = None,
) -> None:
    """Write packages, wheels and images to a new file.

    Prints the SHA-256 of the file's SHA256SUMS, which stands for all of it, for `wherry bundle load`.
    """
    from wherry import VERSION, bundle, bundle_sources, images, snapshot_files
    from wherry.new_files import new_file

    if not files and not image:
        raise WherryError("name packages, wheels, archives of images or images (--image)")
    snapshot_files.require_new(path)
    sources: list[tuple[str, Path | IO[bytes]]] = [(bundle_sources.place(file), file) for file in files or ()]
    with _reported(path), contextlib.ExitStack() as open_files:
        if image:
            root()
            saved = open_files.enter_context(_unnamed_file(path))
            with step("save images", to=errors) as progress:
                asyncio.run(images.export(installed(prefix), saved, image, progress))
            sources.append((f"{bundle.IMAGES}/saved.tar", saved))
        with step("read the files", to=errors) as progress:
            progress.total = sum(map(_size, sources))
            members = bundle.members(sources, progress.add)
        with step("write the bundle", to=errors) as progress, new_file(path) as file:
            progress.total = sum(member.size for member in members)
            with position_in(file.fileno(), progress):
                digest = bundle.write(file, sources, members, VERSION)
    print(digest)


@bundle_app.command("load")
def bundle_load(
    path: Annotated[Path, typer.Argument(help="The bundle.", show_default=False)],
    prefix: options.Prefix = "/",
    *,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256", help="SHA-256 that `wherry bundle create` printed. Default: not checked.", show_default=False
        ),
    ] = None,
) -> None:
    """Install the packages, wheels and images of a bundle.

    It is verified first. Packages that are installed in the same version or a newer one are left out. scripts/up and
    scripts/join install from the wheels. Images need a machine that has a cluster.
    """
    from wherry import bundle, snapshot_files
    from wherry import settings as saved
    from wherry.layout import Layout
    from wherry.oci import ARCHITECTURE

    root()
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"--sha256 {sha256!r} is no SHA-256: give the 64 digits that `wherry bundle create` printed")
    settings = saved.load(prefix)
    with bundle.opened(path) as file, _reported(path):
        with step("verify the bundle") as progress, position_in(file.fileno(), progress):
            manifest = bundle.verify(file, (sha256 or "").lower())
        if manifest.architecture != ARCHITECTURE:
            raise WherryError(f"the bundle is for {manifest.architecture}, and this machine is {ARCHITECTURE}")
        has_images = any(each.path.startswith(f"{bundle.IMAGES}/") for each in manifest.files)
        with snapshot_files.private_folder(Layout(Path(prefix)).state) as folder:
            _install(bundle.unpack(file, manifest, bundle.PACKAGES, folder))
            if any(each.path.startswith(f"{bundle.WHEELS}/") for each in manifest.files):
                _keep_wheels(file, manifest, folder, Layout(Path(prefix)).wheels)
            if has_images and settings is not None:
                with step("unpack the images") as progress, position_in(file.fileno(), progress):
                    archives = bundle.unpack(file, manifest, bundle.IMAGES, folder)
                _load_images(prefix, archives)
    if has_images and settings is None:
        raise WherryError("the images are not loaded, because there is no cluster: run `wherry up`, then this again")


def _size(source: tuple[str, Path | IO[bytes]]) -> int:
    """Return the size of a file of a bundle, 0 if it cannot be read, which is reported when it is."""
    try:
        return os.stat(source[1] if isinstance(source[1], Path) else source[1].fileno()).st_size
    except OSError:
        return 0


def _install(files: Sequence[Path]) -> None:
    from wherry import bundle_packages

    if files:
        with step("install packages"):
            found = asyncio.run(bundle_packages.install(files))
        for name in found:
            console.print(f"installed {name}", soft_wrap=True)


def _keep_wheels(file: IO[bytes], manifest: Manifest, folder: Path, target: Path) -> None:
    """Replace the wheels of an earlier bundle by those of this one; `folder` is private and on the same file system."""
    from wherry import bundle

    with step("unpack the wheels") as progress, position_in(file.fileno(), progress):
        (new := folder / "new-wheels").mkdir()
        wheels = bundle.unpack(file, manifest, bundle.WHEELS, new)
        for wheel in wheels:
            wheel.chmod(0o644)
        if target.exists():
            target.rename(folder / "former-wheels")
        new.chmod(0o755)
        new.rename(target)
    console.print(f"{len(wheels)} wheels are in {target}, where scripts/install finds them", soft_wrap=True)


def _load_images(prefix: str, archives: Sequence[Path]) -> None:
    from wherry import image_loading

    for archive in archives:
        with step(f"load {archive.name}") as progress:
            names = asyncio.run(image_loading.load_archive(installed(prefix), archive, progress))
        for name in names:
            console.print(name, soft_wrap=True)


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn errors of the file system into the command's."""
    try:
        yield
    except OSError as error:
        raise WherryError(f"{error.filename or path}: {os_errors.reason(error)}") from error


@contextlib.contextmanager
def _unnamed_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file without a name in the folder of the bundle: saved images take their space where the bundle takes it."""
    try:
        file = tempfile.TemporaryFile(dir=path.absolute().parent)
    except OSError as error:
        raise WherryError(f"{path} cannot be written: {os_errors.reason(error)}") from error
    with file:
        yield file
