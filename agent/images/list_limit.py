"""Keeps the runtime's list of images small enough for one message, and removes images if it is too large for one.

A list has all names of all images, and pods choose them: tiny images under long names fill no disk, so that the thresholds of
image garbage collection never act, but the list becomes too large to be received (containerd sends at most 16 MiB), and CRI
has no parts of lists. So unused images are removed as soon as the list has `LIST_BYTES`, and then names of images in use. If it
cannot be received at all, containerd's own service lists the IDs of images, and the newest unused ones are removed until the
list can be received again; if only those in use are left, they are read one by one, and lose names. What else a list has of an
image (its user, annotations) cannot be deleted, so no container gets an image that has much of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.images.names import BUILT_IN, with_registry
from agent.images.names_in_use import full_name, sandbox_image
from cri.channel import MESSAGE_BYTES
from cri.client import Client
from cri.errors import CRIError, DeadlineExceededError, MessageTooLargeError, UnavailableError, UnimplementedError
from cri.messages import Image

log = logging.getLogger(__name__)

LIST_BYTES = MESSAGE_BYTES // 2
"""Bytes of the list above which unused images are removed."""
LARGE_BYTES = 4096
"""Bytes of an image in the list from which it counts as large: large ones are removed first, the others by their last use."""
MOST_BESIDE_NAMES = 16 * 1024
"""Bytes that an image in use may have in the list beside its names."""
_NO_ANSWER = (DeadlineExceededError, UnavailableError, UnimplementedError)
"""Errors after which the next call would fail, too."""
AT_ONCE = 16
"""Images that are removed at a time: containerd collects its garbage once for all that are removed together."""


@dataclass(frozen=True, slots=True)
class UnlistedImage:
    """An image of a list that cannot be received."""

    id: str
    created: float | None
    """By the wall clock, in seconds since 1970; None if it is not known."""


def beside_names(image: Image) -> int:
    """Return the bytes of an image in the list without its names and what encodes them: a tenant may add thousands of names."""
    rest = Image()
    rest.CopyFrom(image)
    rest.ClearField("repo_tags")
    rest.ClearField("repo_digests")
    return rest.ByteSize()


def surplus(images: Iterable[Image], last_used: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the IDs of images to remove, of those in `last_used`, so that the list has at most `LIST_BYTES`.

    `last_used` has times by ID: of the last use, and of the first list with the image.
    """
    sizes = {image.id: image.ByteSize() for image in images}
    over = sum(sizes.values()) - LIST_BYTES
    found: list[str] = []
    if over > 0:
        for image_id in sorted(last_used, key=lambda i: (-(sizes[i] // LARGE_BYTES), last_used[i])):
            if over <= 0:
                break
            found.append(image_id)
            over -= sizes[image_id]
    return found


def surplus_names(images: Sequence[Image], specified: Iterable[str]) -> list[str]:
    """Return the names to delete so that the list has at most `LIST_BYTES`, if unused images have been removed.

    `specified` are names in the configuration of pods and of the runtime.
    Only images with more than an equal share of the list lose names: those that nothing specifies first, the longest first. The
    share is what is left of others, so images with few names keep all of them. Each image keeps a name.
    """
    sizes, wanted = [image.ByteSize() for image in images], set(map(full_name, specified))
    share, found = _share(sizes), list[str]()
    for image, size in zip(images, sizes, strict=True):
        if size > share:
            names = [name for name in (*image.repo_tags, *image.repo_digests) if not name.startswith(BUILT_IN)]
            names.sort(key=lambda name: (name in wanted, -len(name)))
            for name in names[:-1]:
                if size <= share:
                    break
                found.append(name)
                size -= _encoded(name)
    return found


def _encoded(name: str) -> int:
    """Return the bytes of a name in the list: with 25 bytes of text it has two more."""
    return Image(repo_tags=[name]).ByteSize()


def _share(sizes: Iterable[int]) -> int:
    """Return the bytes that each image may have, so that all have at most `LIST_BYTES` together."""
    left, ordered = LIST_BYTES, sorted(sizes)
    for number, size in enumerate(ordered):
        share = left // (len(ordered) - number)
        if size > share:
            return share
        left -= size
    return LIST_BYTES


async def delete_surplus_names(runtime: Client, specified: Callable[[], Iterable[str]]) -> None:
    """Delete names of images in containerd if the list is too large also without unused images. Raise CRIError.

    CRI removes an image only with all its names, so other runtimes keep them.
    """
    try:
        images = await runtime.images.list_images()
    except MessageTooLargeError:
        images = await _images_one_by_one(runtime)
    if not await asyncio.to_thread(_are_too_large, images):
        return
    status = await runtime.runtime.status(verbose=True)
    names = await asyncio.to_thread(surplus_names, images, [sandbox_image(status.info), *specified()])
    deleted = 0
    for name in names:
        try:
            await runtime.containerd.delete_image_name(name)
        except _NO_ANSWER:
            raise
        except CRIError as error:
            log.warning("deleting the name %s of an image: %s", name, error)
            continue
        deleted += 1
    log.warning("the runtime's list of images is too large: deleted %d names of images in use", deleted)


def _are_too_large(images: Iterable[Image]) -> bool:
    return sum(image.ByteSize() for image in images) > LIST_BYTES


async def _images_one_by_one(runtime: Client) -> list[Image]:
    """Return the images without those that are larger than a message by themselves. Raise CRIError."""
    found: list[Image] = []
    for name in await runtime.containerd.image_ids():
        try:
            image = await runtime.images.image_status(name.name)
        except MessageTooLargeError as error:
            log.warning("image %s has too many names: %s", name.name, error)
            continue
        except _NO_ANSWER:
            raise
        except CRIError as error:
            log.warning("reading image %s: %s", name.name, error)
            continue
        if image is not None:
            if beside_names(image) > MOST_BESIDE_NAMES:  # all are held at a time
                image = Image(id=image.id, repo_tags=image.repo_tags, repo_digests=image.repo_digests, size=image.size)
            found.append(image)
    return found


async def unlisted_images(runtime: Client, names: Iterable[str], known: Iterable[str]) -> list[UnlistedImage]:
    """Return the images that none of the names (IDs, tags or digests) means, the newest first. Raise CRIError.

    `known` are the IDs of images that were listed before, for runtimes other than containerd.
    """
    wanted = {name for name in names if name}
    try:
        found = await runtime.containerd.image_ids()
    except UnimplementedError:
        ids = set(known)
        used = {await _id_of(runtime, name) for name in wanted - ids} | wanted
        return [UnlistedImage(image_id, None) for image_id in ids - used]
    targets = {name.target for name in await runtime.containerd.image_names(BUILT_IN)}
    for name in wanted - {image.name for image in found}:
        meant = await runtime.containerd.image_name(with_registry(name))
        if meant is not None:
            targets.add(meant.target)
        else:
            wanted.add(await _id_of(runtime, name))
    unused = (i for i in found if not i.pinned and i.target not in targets and i.name not in wanted)
    return [UnlistedImage(i.name, i.created) for i in sorted(unused, key=lambda i: i.created, reverse=True)]


async def _id_of(runtime: Client, name: str) -> str:
    found = await runtime.images.image_status(name)
    return found.id if found is not None else ""


async def is_listed(runtime: Client) -> bool:
    """Return whether the list of images can be received. Raise CRIError."""
    try:
        await runtime.images.list_images()
    except MessageTooLargeError:
        return False
    return True
