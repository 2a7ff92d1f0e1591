"""Lists, saves and removes images of containerd with `ctr`, which works without an agent."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kube.process import run
from wherry import pause
from wherry.containerd import ctr
from wherry.errors import WherryError
from wherry.new_files import new_file
from wherry.output import Column
from wherry.progress import Progress, position_in
from wherry.settings import Settings

SECONDS = 600.0
UNITS: dict[str, int] = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))}
ID = "sha256:"
"""Prefix of a name that is an image's ID."""


@dataclass(frozen=True, slots=True)
class Image:
    """One name of an image; `size` as people read it, `labels` without values."""

    name: str
    digest: str
    size: str
    platforms: str
    labels: frozenset[str] = frozenset()


COLUMNS: Sequence[Column[Image]] = (
    Column("NAME", lambda image: image.name),
    Column("SIZE", lambda image: image.size),
    Column("DIGEST", lambda image: image.digest),
    Column("PLATFORMS", lambda image: image.platforms, wide=True),
)


def as_data(image: Image) -> dict[str, object]:
    """Return an image as JSON data."""
    return {
        "name": image.name,
        "digest": image.digest,
        "size": bytes_of(image.size),
        "platforms": [each for each in image.platforms.split(",") if each != "-"],
    }


def bytes_of(size: str) -> int:
    """Return a size such as `1.5 MiB` in bytes, as exactly as `ctr` prints it; 0 for one in another form."""
    amount, _, unit = size.partition(" ")
    try:
        return round(float(amount) * UNITS[unit])
    except (KeyError, ValueError):
        return 0


async def listed(settings: Settings) -> list[Image]:
    """Return the images by name, without names that are only an ID; raises CommandError."""
    return [image for image in await _all(settings) if not image.name.startswith(ID)]


async def _all(settings: Settings) -> list[Image]:
    lines = (await run([*ctr(settings), "images", "list"])).stdout.splitlines()[1:]
    return sorted(filter(None, map(parsed, lines)), key=lambda image: image.name)


def parsed(line: str) -> Image | None:
    """Read a line of `ctr images list`: name, type, digest, size with its unit, platforms, labels."""
    words = line.split()
    if len(words) < 6:
        return None
    name, _, digest, amount, unit, platforms = words[:6]
    labels = {label.partition("=")[0] for word in words[6:] for label in word.split(",")}
    return Image(name, digest, f"{amount} {unit}", platforms, frozenset(labels))


async def unused(settings: Settings) -> list[Image]:
    """Return the images that no container names, by one name each, except for the sandbox image."""
    found = await _all(settings)
    lines = (await run([*ctr(settings), "containers", "list"])).stdout.splitlines()[1:]
    names = {words[1] for line in lines if len(words := line.split()) > 1} | {pause.IMAGE, settings.sandbox_image}
    used = {image.digest for image in found if image.name in names}
    used |= {name.rpartition("@")[2] for name in names if "@" in name}
    # CRI gives each image its ID as a further name; it is shown for an image that has no other.
    best = {image.digest: image for image in sorted(found, key=lambda image: not image.name.startswith(ID))}
    return sorted((image for image in best.values() if image.digest not in used), key=lambda image: image.name)


def with_last_names(found: Sequence[Image], names: Sequence[str]) -> list[str]:
    """Return the names to remove: with the last tag of an image go its names by digest and ID, which keep it on the disk."""
    wanted = dict.fromkeys(names)
    digests = {image.digest for image in found if image.name in wanted}
    for digest in sorted(digests):
        others = [image.name for image in found if image.digest == digest and image.name not in wanted]
        if all("@" in name or name.startswith(ID) for name in others):
            wanted |= dict.fromkeys(others)
    return list(wanted)


def _full_names(found: Sequence[Image], names: Sequence[str]) -> list[str]:
    """Return the names as the runtime has them, of which people leave out parts: `app` is docker.io/library/app:latest there.

    Raise WherryError if there is no such image.
    """
    present = {image.name for image in found}
    full = [name if name in present else _completed(name) for name in names]
    if missing := [name for name, complete in zip(names, full, strict=True) if complete not in present]:
        raise WherryError(f"there is no image {missing[0]}: `wherry image list` shows the names")
    return full


def _completed(name: str) -> str:
    from agent.images import names

    with contextlib.suppress(names.InvalidImageName):
        return names.with_registry(names.with_default_tag(name))
    return name


async def remove(settings: Settings, names: Sequence[str]) -> list[str]:
    """Remove images by name and return the names; raises WherryError before anything is removed if one is not there."""
    found = await _all(settings)
    full = _full_names(found, names)
    await _close(settings, found, full)
    await run([*ctr(settings), "images", "rm", "--sync", *with_last_names(found, full)], timeout=SECONDS)
    return full


async def _close(settings: Settings, found: Sequence[Image], names: Sequence[str]) -> None:
    """Remove the labels of images that were loaded with the names: an image may stay under others, and be pulled by these."""
    from agent.images.names import LOADED

    for image in found:
        labels = sorted(image.labels.intersection(LOADED + name for name in names))
        if labels and image.name.startswith(ID):
            await run([*ctr(settings), "images", "label", image.name, *(f"{label}=" for label in labels)])


async def save(settings: Settings, path: Path, names: Sequence[str], progress: Progress | None = None) -> None:
    """Write images to a new archive with mode 0600; raises WherryError if one is not there, or the file is."""
    with new_file(path) as file:
        await export(settings, file, names, progress)


async def export(settings: Settings, file: IO[bytes], names: Sequence[str], progress: Progress | None = None) -> None:
    """Write images to an open file as an archive; raises WherryError if one is not there."""
    found = await listed(settings)
    full = _full_names(found, names)
    progress = progress or Progress("")
    # What the archive has in addition is small; layers that images share make it smaller.
    progress.total = sum({image.digest: bytes_of(image.size) for image in found if image.name in full}.values())
    with position_in(file.fileno(), progress):
        await run([*ctr(settings), "images", "export", "-", *full], timeout=SECONDS, stdout=file.fileno())
    progress.total = progress.done
