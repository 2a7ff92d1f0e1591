"""Image garbage collection: removes unused images above the high threshold of the images' disk until the low one is reached,
and images that were unused for the maximum age.

Least recently used first, none younger than the minimum age, never one that is pinned (the sandbox image) or that a container
still has (pkg/kubelet/images/image_gc_manager.go).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.images.names import BUILT_IN
from agent.usage.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.errors import CRIError
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
    """Frees the images' disk. `mounted` returns the IDs of images that containers have as volumes, which no list shows."""

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
        metrics: KubeletMetrics | None = None,
    ) -> None:
        """`seen` is called with the IDs and names of all images, as listed after a moment of `time.monotonic`; it may block."""
        self._metrics = metrics or KubeletMetrics()
        self._runtime, self._clock, self._high, self._low = runtime, clock, high, low
        self._minimum_age, self._maximum_age, self._disk = minimum_age, maximum_age, disk or read_disk
        self._mounted = mounted
        self._seen_images = seen or (lambda present, listed_at: None)
        self._seen: dict[str, _Seen] = {}
        self._collecting = asyncio.Lock()
        """One collection at a time: the period's and the eviction's would count the same images twice."""

    async def run(self) -> None:
        """Collect every five minutes until cancelled. Images are listed for `seen` also if none is to be removed."""
        while True:
            try:
                await self.remove_old()
                await self.collect()
            except (CRIError, OSError) as error:
                log.warning("image garbage collection: %s", error)
            await self._clock.sleep(PERIOD_SECONDS)

    async def collect(self) -> int:
        """Free what the thresholds request; return the bytes freed. Raise CRIError, OSError."""
        async with self._collecting:
            return await self._collect()

    async def _collect(self) -> int:
        await self._detect_images()
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
        freed = 0
        for image_id in image_ids:
            try:
                await self._runtime.images.remove_image(image_id)
            except CRIError as error:
                log.warning("removing image %s: %s", image_id, error)
                continue
            self._metrics.images_collected.inc(reason)
            freed += self._seen.pop(image_id).size
        return freed

    async def _detect_images(self) -> set[str]:
        """Record all images and which are used; return the IDs of unused ones."""
        now, listed_at = self._clock.monotonic(), time.monotonic()
        images, containers, status = await asyncio.gather(
            self._runtime.images.list_images(),
            self._runtime.runtime.list_containers(),
            self._runtime.runtime.status(verbose=True),
        )
        named = [name for c in containers for name in (c.image.image, c.image_ref, c.image_id)]
        used = used_images(images, [*named, *self._mounted(), sandbox_image(status.info)])
        present = {image.id for image in images}
        names = [(image.id, [*image.repo_tags, *image.repo_digests]) for image in images]
        await asyncio.to_thread(self._seen_images, names, listed_at)
        for image in images:
            seen = self._seen.setdefault(image.id, _Seen(now, now, image.size))
            if image.id in used:
                seen.used = now
        for gone in self._seen.keys() - present:
            del self._seen[gone]
        return {image.id for image in images if not image.pinned} - used


def used_images(images: Iterable[Image], names: Iterable[str]) -> set[str]:
    """Return the IDs of the images that the names (IDs, tags or digests) mean, and of those that are made on the node."""
    wanted = set(names)
    return {i.id for i in images if i.id in wanted or wanted & {*i.repo_tags, *i.repo_digests} or _built_in(i)}


def _built_in(image: Image) -> bool:
    return any(tag.startswith(BUILT_IN) for tag in image.repo_tags)


def sandbox_image(info: Mapping[str, str]) -> str:
    """Return the sandbox image's name in the runtime's verbose status, "" where it is not reported.

    containerd before 2.0 does not pin the image, and lists no container that has it. A pod's author chooses names of images, so
    none is kept for its name alone.
    """
    with contextlib.suppress(ValueError, AttributeError):
        name = json.loads(info.get("config", "{}")).get("sandboxImage")
        return name if isinstance(name, str) else ""
    return ""


def read_disk(path: str) -> ImageDisk:
    """Read the size of the filesystem that holds a path."""
    found = os.statvfs(path if os.path.exists(path) else "/")
    return ImageDisk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
