from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from agent.images.garbage_collection import ImageDisk, ImageGC
from cri.client import Client
from cri.errors import UnavailableError
from cri.messages import Image
from kube.clock import FakeClock, settle


class Runtime:
    """Images that nothing uses; each takes a moment to remove, and removing what is gone succeeds, as CRI has it."""

    def __init__(self) -> None:
        self.have = {f"i{n}": Image(id=f"i{n}", size=100) for n in range(5)}
        self.removed: list[str] = []
        self.info = dict[str, str]()
        self.images = self.runtime = self

    async def list_images(self) -> list[Image]:
        return list(self.have.values())

    async def list_containers(self) -> list[object]:
        return []

    async def status(self, *, verbose: bool) -> SimpleNamespace:
        return SimpleNamespace(info=self.info if verbose else {})

    async def image_fs_info(self) -> list[object]:
        return [SimpleNamespace(fs_id=SimpleNamespace(mountpoint="/"))]

    async def remove_image(self, image: str) -> None:
        await asyncio.sleep(0.01)
        self.have.pop(image, None)
        self.removed.append(image)


FULL = ImageDisk(1000, 100)


def collection(runtime: Runtime, clock: FakeClock, disk: ImageDisk) -> ImageGC:
    return ImageGC(cast(Client, runtime), clock, high=85, low=80, minimum_age=0, disk=lambda path: disk)


async def test_collections_side_by_side_remove_and_count_each_image_once() -> None:
    runtime = Runtime()
    images = collection(runtime, FakeClock(), FULL)
    freed = await asyncio.gather(images.collect(), images.free(sys.maxsize), images.collect())
    assert sum(freed) == 500
    assert sorted(runtime.removed) == ["i0", "i1", "i2", "i3", "i4"]


@pytest.mark.parametrize(
    ("info", "kept"),
    [
        ({"config": '{"sandboxImage": "registry.example/pause:3"}'}, {"sandbox", "made", "pinned"}),
        ({"config": '{"sandboxImage": 5}'}, {"made", "pinned"}),
        ({"config": "[]"}, {"made", "pinned"}),
        ({"config": "{"}, {"made", "pinned"}),
        ({}, {"made", "pinned"}),
    ],
)
async def test_the_sandbox_image_is_kept_and_no_other_for_a_name_like_its(info: dict[str, str], kept: set[str]) -> None:
    runtime = Runtime()
    runtime.info = info
    tags = {
        "sandbox": "registry.example/pause:3",
        "made": "wherry.local/pause:2",
        "alike": "evil.example/0/pause:v",
        "older": "registry.example/pause:2",
    }
    runtime.have = {name: Image(id=name, size=100, repo_tags=[tag]) for name, tag in tags.items()}
    runtime.have["pinned"] = Image(id="pinned", size=100, pinned=True)
    runtime.have["digest"] = Image(id="digest", size=100, repo_digests=["evil.example/pause@sha256:" + 64 * "0"])
    await collection(runtime, FakeClock(), FULL).free(sys.maxsize)
    assert set(runtime.have) == kept


async def test_a_disk_that_cannot_be_measured_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    runtime, clock, failures = Runtime(), FakeClock(), [OSError("Input/output error")]

    def disk(path: str) -> ImageDisk:
        if failures:
            raise failures.pop()
        return ImageDisk(1000, 0)

    images = ImageGC(cast(Client, runtime), clock, high=85, low=80, minimum_age=0, disk=disk)
    task = asyncio.create_task(images.run())
    async with asyncio.timeout(10):
        while failures:
            await asyncio.sleep(0.001)
        while runtime.have and not task.done():
            await clock.advance(60)
            await settle()
            await asyncio.sleep(0.001)
    assert not task.done() and "Input/output error" in caplog.text
    task.cancel()


async def test_an_image_that_cannot_be_removed_keeps_none_of_the_others() -> None:
    runtime = Runtime()
    remove = runtime.remove_image

    async def refuses(image: str) -> None:
        if image == "i0":
            raise UnavailableError("the image is in use")
        await remove(image)

    runtime.remove_image = refuses  # type: ignore[method-assign]
    images = collection(runtime, FakeClock(), FULL)
    assert await images.free(sys.maxsize) == 400
    assert sorted(runtime.removed) == ["i1", "i2", "i3", "i4"]


TEN_YEARS = 10 * 365 * 86400.0


@pytest.mark.parametrize("step", [TEN_YEARS, -TEN_YEARS])
async def test_images_do_not_age_by_a_step_of_the_wall_clock(step: float) -> None:
    runtime, clock = Runtime(), FakeClock()
    images = ImageGC(
        cast(Client, runtime), clock, high=85, low=80, minimum_age=120, maximum_age=3600, disk=lambda path: FULL
    )
    await images.collect()
    clock.step(step)
    assert await images.remove_old() == await images.collect() == await images.free(sys.maxsize) == 0
    assert runtime.removed == []
    await clock.advance(120)
    assert await images.remove_old() == 0
    assert await images.free(200) == 200
    await clock.advance(3600)
    assert await images.remove_old() == 300
