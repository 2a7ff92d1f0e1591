"""Loads images into containerd, labelled as the administrator's: the agent opens them to all pods.

The labels are those of agent/images/loaded_images.py: one for each name, on the ID that containerd's CRI plugin gives the
image. Plain `ctr images import` sets none.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tempfile
from pathlib import Path

import msgspec

from kube.error_words import cause
from kube.process import run
from wherry import containerd, images
from wherry.errors import WherryError
from wherry.progress import Progress
from wherry.settings import Settings
from wherry.terminal import errors

IDENTIFIED_SECONDS, POLL_SECONDS = 5.0, 0.1
"""Time in which CRI gives an imported image its ID, and between two requests."""
DEPTH, PLATFORMS = 2, 64
"""Indexes within each other of an image that is loaded, and entries that are read of one."""
_DIGEST = re.compile(r"\b[0-9a-f]{12,64}\b")


class _Descriptor(msgspec.Struct):
    digest: str


class _Manifest(msgspec.Struct):
    """An image's manifest, or an index of manifests."""

    config: _Descriptor | None = None
    manifests: list[_Descriptor] = []


async def load_archive(settings: Settings, archive: Path, progress: Progress | None = None) -> list[str]:
    """Load the images of an archive (OCI layout or `docker save`) and return their names."""
    printed = await containerd.import_archive(settings, archive, progress)
    names, unknown = await _label(settings, printed)
    for name in unknown if names else [archive.name]:
        errors.print(
            f"containerd lists no image for this machine as {name}: pods that use it may need credentials "
            "(docs/agent.md, image pull credentials)",
            soft_wrap=True,
        )
    return names


async def _label(settings: Settings, printed: str) -> tuple[list[str], list[str]]:
    """Label the images that `ctr images import` printed; return their names, and those of which CRI has no ID."""
    from agent.images.names import LOADED

    configurations: dict[str, set[str]] = {}
    for attempt in range(round(IDENTIFIED_SECONDS / POLL_SECONDS)):
        await asyncio.sleep(POLL_SECONDS if attempt else 0)
        digests = await containerd.image_digests(settings)
        names = imported(printed, digests)
        for digest in {digests[name] for name in names} - configurations.keys():
            configurations[digest] = await _configurations(settings, digest)
        ids = {name: sorted(configurations[digests[name]] & digests.keys()) for name in names}
        unknown = [name for name in names if not ids[name]]
        if not unknown:
            break
    for name in names:
        for image_id in ids[name]:
            await run([*containerd.ctr(settings), "images", "label", image_id, f"{LOADED}{name}=true"])
    return names, unknown


async def _configurations(settings: Settings, digest: str, deeper: int = DEPTH) -> set[str]:
    """Return the digests of an image's configurations, one for each platform that is present: the machine's is the image's ID.

    The ID is not looked up by the image's name, which a pull may move meanwhile, nor by its manifest: images of several
    manifests may have one ID, and the ID means the last of them.
    """
    read = await run([*containerd.ctr(settings), "content", "get", digest], check=False)
    try:
        found = msgspec.json.decode(read.stdout, type=_Manifest)
    except (msgspec.DecodeError, RecursionError):  # also for a platform that is not in the archive
        return set()
    digests = {found.config.digest} if found.config is not None else set[str]()
    for each in found.manifests[:PLATFORMS] if deeper else ():
        digests |= await _configurations(settings, each.digest, deeper - 1)
    return digests


def imported(printed: str, digests: dict[str, str]) -> list[str]:
    """Return the names in the output of an import, without those that by now mean an image whose digest it does not have.

    That is one that a pull has moved meanwhile. Newer versions print the first digits of digests.
    """
    words, parts = set(printed.split()), tuple(_DIGEST.findall(printed))
    return sorted(
        name
        for name, digest in digests.items()
        if name in words and not name.startswith(images.ID) and digest.removeprefix(images.ID).startswith(parts)
    )


async def load_from_docker(settings: Settings, image: str, progress: Progress) -> list[str]:
    """Copy an image of the local Docker engine, with the package of the extra `docker`."""
    try:
        import docker
        from docker.errors import DockerException, ImageNotFound
        from requests import RequestException
    except ModuleNotFoundError as error:
        raise WherryError(
            f"{image} cannot be read from the local Docker engine without the Python package docker: load an archive instead "
            f"(`docker save -o image.tar {shlex.quote(image)}`, `wherry image load ./image.tar`), or install the package "
            "(`scripts/install --docker`, or `pip install 'wherry[docker]'`)"
        ) from error
    try:
        engine = docker.from_env()
        engine.images.get(image)
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            # The engine completes the name (nginx to nginx:latest); Image.save() accepts only complete ones.
            for chunk in engine.api.get_image(image):
                file.write(chunk)
                progress.add(len(chunk))
            file.flush()
            progress.again()
            return await load_archive(settings, Path(file.name), progress)
    except ImageNotFound as error:
        raise WherryError(f"the local Docker engine has no image {image}: `docker pull {image}` first") from error
    except (DockerException, RequestException) as error:
        where = os.environ.get("DOCKER_HOST") or "/var/run/docker.sock"
        text = f"the local Docker engine does not answer ({where}: {cause(error)}): start it, or name an archive"
        raise WherryError(text) from error
