"""Image garbage collection: removes unused images above the high threshold of the images' disk until the low one is reached,
and images that were unused for the maximum age.

Least recently used first, none younger than the minimum age, never one that is pinned (the sandbox image) or that a container
still has (pkg/kubelet/images/image_gc_manager.go). The runtime's list of images has a limit, too (list_limit.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent import complete_lists
from agent.images import list_limit
from agent.images.names_in_use import sandbox_image, used_images
from agent.metrics.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.errors import CRIError, MessageTooLargeError
from cri.messages import Image
from kube.clock import Clock

log = logging.getLogger(__name__)

PERIOD_SECONDS = 300.0


@dataclass(slots=True)
class _Seen:
    first: float
    used: float
    size: int


@dataclass(frozen=True, slots=True)
class ImageDisk:
    """The images' filesystem, in bytes."""

    capacity: int
    available: int

    @property
    def used_percent(self) -> int:
        return 100 - self.available * 100 // self.capacity if self.capacity else 0


class ImageGC:
    """Frees the images' disk. `mounted` returns the IDs of images that containers have as volumes, which no list shows.

    `specified` returns the names by which pods specify the images of their containers.
    """

    def __init__(
        self,
        runtime: Client,
        clock: Clock,
        *,
        high: int,
        low: int,
        minimum_age: float,
        maximum_age: float = 0.0,
        disk: Callable[[str], ImageDisk] | None = None,
        seen: Callable[[Iterable[tuple[str, Sequence[str]]], float], None] | None = None,
        mounted: Callable[[], Iterable[str]] = tuple,
        specified: Callable[[], Iterable[str]] = tuple,
        metrics: KubeletMetrics | None = None,
    ) -> None:
        """`seen` is called with the IDs and names of all images, as listed after a moment of `time.monotonic`; it may block."""
        self._metrics = metrics or KubeletMetrics()
        self._runtime, self._clock, self._high, self._low = runtime, clock, high, low
        self._minimum_age, self._maximum_age, self._disk = minimum_age, maximum_age, disk or read_disk
        self._mounted, self._specified = mounted, specified
        self._seen_images = seen or (lambda present, listed_at: None)
        self._seen: dict[str, _Seen] = {}
        self._images: list[Image] = []
        self._collecting = asyncio.Lock()
        """One collection at a time: the period's and the eviction's would count the same images twice."""
        self._collected = asyncio.Event()
        """Set after a collection of the period; names of images in use are not deleted while unused images may be left."""

    async def run(self) -> None:
        """Collect every five minutes until cancelled. Images are listed for `seen` also if none is to be removed."""
        while True:
            for collect in (self.remove_old, self._collect_and_tell):
                try:
                    await collect()
                except (CRIError, OSError) as error:
                    log.warning("image garbage collection: %s", error)
            await self._clock.sleep(PERIOD_SECONDS)

    async def delete_names(self) -> None:
        """Delete surplus names after each collection until cancelled. No collection waits for this: there may be thousands."""
        while True:
            await self._collected.wait()
            self._collected.clear()
            try:
                await self.delete_surplus_names()
            except CRIError as error:
                log.warning("deleting names of images: %s", error)

    async def _collect_and_tell(self) -> int:
        try:
            freed = await self.collect()
        except MessageTooLargeError:  # with the images in use alone, too
            self._collected.set()
            raise
        self._collected.set()
        return freed

    async def collect(self) -> int:
        """Free what the thresholds request; return the bytes freed. Raise CRIError, OSError."""
        async with self._collecting:
            return await self._collect()

    async def _collect(self) -> int:
        await self._shorten_list()
        systems = await self._runtime.images.image_fs_info()
        if not systems:
            return 0
        disk = await asyncio.to_thread(self._disk, systems[0].fs_id.mountpoint)
        if self._high >= 100 or disk.used_percent < self._high:
            return 0
        wanted = disk.capacity * (100 - self._low) // 100 - disk.available
        log.info("image disk is %d %% full: freeing %d bytes", disk.used_percent, wanted)
        return await self._free(wanted)

    async def remove_old(self) -> int:
        """Remove images that nothing has used for the maximum age (0: for ever); return the bytes freed. Raise CRIError.

        What happened before the agent started is not known: ages count from then (imageMaximumGCAge).
        """
        if not self._maximum_age:
            return 0
        async with self._collecting:
            now = self._clock.monotonic()
            old = [i for i in await self._detect_images() if now - self._seen[i].used >= self._maximum_age]
            return await self._remove(old, "age")

    async def free(self, wanted: int) -> int:
        """Remove unused images until so many bytes are free, or none is left. Raise CRIError."""
        async with self._collecting:
            return await self._free(wanted)

    async def delete_surplus_names(self) -> None:
        """Delete names of images in use if the runtime's list of images is too large for them. Raise CRIError."""
        await list_limit.delete_surplus_names(self._runtime, self._specified)

    async def _free(self, wanted: int) -> int:
        now = self._clock.monotonic()
        unused = await self._detect_images()
        freed = 0
        for image_id in sorted(unused, key=lambda i: (self._seen[i].used, self._seen[i].first)):
            if freed >= wanted:
                break
            if now - self._seen[image_id].first >= self._minimum_age:
                freed += await self._remove([image_id], "space")
        return freed

    async def _remove(self, image_ids: Iterable[str], reason: str) -> int:
        return sum([await self._remove_one(image_id, reason) or 0 for image_id in image_ids])

    async def _remove_one(self, image_id: str, reason: str) -> int | None:
        """Remove an image; return its size as listed, None if it cannot be removed."""
        try:
            await self._runtime.images.remove_image(image_id)
        except CRIError as error:
            log.warning("removing image %s: %s", image_id, error)
            return None
        self._metrics.images_collected.inc(reason)
        seen = self._seen.pop(image_id, None)
        return seen.size if seen is not None else 0

    async def _remove_together(self, image_ids: Sequence[str]) -> int:
        """Remove images because of the list, several at a time; return the number of those that were removed."""
        removed = 0
        for start in range(0, len(image_ids), list_limit.AT_ONCE):
            some = image_ids[start : start + list_limit.AT_ONCE]
            found = await asyncio.gather(*(self._remove_one(image_id, "list") for image_id in some))
            removed += sum(size is not None for size in found)
        return removed

    async def _shorten_list(self) -> None:
        """Remove unused images if the runtime's list of images is too large."""
        unused = await self._detect_images()
        now = self._clock.monotonic()
        removable = [i for i in unused if now - self._seen[i].first >= self._minimum_age]
        last_used = {image_id: (self._seen[image_id].used, self._seen[image_id].first) for image_id in removable}
        surplus = await asyncio.to_thread(list_limit.surplus, self._images, last_used)
        if surplus:
            log.warning("the runtime's list of images is too large: removing %d unused images", len(surplus))
            await self._remove_together(surplus)
            await self._detect_images()
        self._images = []

    async def _remove_unlisted(self) -> None:
        """Remove unused images, the newest first, until the runtime's list of images can be received. Raise CRIError."""
        unused = await list_limit.unlisted_images(self._runtime, await self._names_in_use(), list(self._seen))
        now, wall = self._clock.monotonic(), self._clock.now().timestamp()
        removable = [
            image.id
            for image in unused
            if (now - self._seen[image.id].first if image.id in self._seen else wall - (image.created or wall))
            >= self._minimum_age
        ]
        step = max(list_limit.AT_ONCE, len(removable) // 8)
        for start in range(0, len(removable), step):
            removed = await self._remove_together(removable[start : start + step])
            log.warning("the runtime's list of images cannot be received: removed %d unused images", removed)
            if await list_limit.is_listed(self._runtime):
                return

    async def _names_in_use(self) -> set[str]:
        """Return the IDs, tags and digests of images that containers have, and of the sandbox image. Raise CRIError."""
        containers, status = await asyncio.gather(
            complete_lists.containers(self._runtime.runtime), self._runtime.runtime.status(verbose=True)
        )
        named = {name for c in containers for name in (c.image.image, c.image_ref, c.image_id)}
        return {*named, *self._mounted(), sandbox_image(status.info)} - {""}

    async def _detect_images(self) -> set[str]:
        """Record all images and which are used; return the IDs of unused ones."""
        try:
            return await self._detect_listed()
        except MessageTooLargeError as error:
            if error.method != "ListImages":
                raise
        await self._remove_unlisted()
        return await self._detect_listed()

    async def _detect_listed(self) -> set[str]:
        now, listed_at = self._clock.monotonic(), time.monotonic()
        images, named = await asyncio.gather(self._runtime.images.list_images(), self._names_in_use())
        used = await asyncio.to_thread(used_images, images, named)
        self._images = images
        present = {image.id for image in images}
        names = ((image.id, [*image.repo_tags, *image.repo_digests]) for image in images)
        await asyncio.to_thread(self._seen_images, names, listed_at)
        for image in images:
            seen = self._seen.setdefault(image.id, _Seen(now, now, image.size))
            if image.id in used:
                seen.used = now
        for gone in self._seen.keys() - present:
            del self._seen[gone]
        return {image.id for image in images if not image.pinned} - used


def read_disk(path: str) -> ImageDisk:
    """Read the size of the filesystem that holds a path."""
    found = os.statvfs(path if os.path.exists(path) else "/")
    return ImageDisk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
