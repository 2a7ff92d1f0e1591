from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from agent.images import list_limit
from agent.images.garbage_collection import ImageDisk, ImageGC
from agent.images.names_in_use import full_name
from cri.client import Client
from cri.containerd_service import ImageName
from cri.errors import CRIError, MessageTooLargeError, UnavailableError, UnimplementedError
from cri.messages import Container, Image, ImageSpec
from tests.support.clock import FakeClock, settle


class Runtime:
    """Images that nothing uses; each takes a moment to remove, and removing what is gone succeeds, as CRI has it."""

    def __init__(self) -> None:
        self.have = {f"i{n}": Image(id=f"i{n}", size=100) for n in range(5)}
        self.removed: list[str] = []
        self.info = dict[str, str]()
        self.images = self.runtime = self.containerd = self
        self.largest = 1 << 30
        self.names: dict[str, ImageName] | None = None
        """Names and IDs of images in containerd; None for other runtimes."""
        self.used = list[Container]()
        self.deleted = list[str]()

    async def list_images(self) -> list[Image]:
        if sum(image.ByteSize() for image in self.have.values()) > self.largest:
            raise MessageTooLargeError("larger than max", code="RESOURCE_EXHAUSTED", method="ListImages")
        return list(self.have.values())

    async def image_status(self, name: str) -> Image | None:
        return next((image for image in self.have.values() if name in (image.id, *image.repo_tags)), None)

    async def image_ids(self) -> list[ImageName]:
        if self.names is None:
            raise UnimplementedError("unknown service")
        return [ImageName(image, f"t-{image}", float(image[1:]), pinned=False) for image in self.have]

    async def image_names(self, start: str) -> list[ImageName]:
        return [found for name, found in (self.names or {}).items() if name.startswith(start)]

    async def image_name(self, name: str) -> ImageName | None:
        return (self.names or {}).get(name)

    async def delete_image_name(self, name: str) -> None:
        if self.names is None:
            raise UnimplementedError("unknown service")
        self.deleted.append(name)

    async def list_containers(self) -> list[Container]:
        return self.used

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


EMPTY = ImageDisk(1000, 1000)


def tagged(runtime: Runtime, sizes: list[int]) -> None:
    """Have images with so many bytes of names each."""
    runtime.have = {f"i{n}": Image(id=f"i{n}", size=1, repo_tags=["a" * size]) for n, size in enumerate(sizes)}


async def test_unused_images_are_removed_if_the_list_is_long_though_the_disk_is_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, clock = Runtime(), FakeClock()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 3000)
    images = collection(runtime, clock, EMPTY)
    tagged(runtime, [500] * 5)
    assert await images.collect() == 0 and runtime.removed == []
    tagged(runtime, [500] * 5 + [9000, 500, 500])
    runtime.used = [Container(image=ImageSpec(image="i0"))]
    await clock.advance(60)
    await images.collect()
    assert runtime.removed[0] == "i5", "the image of many names is removed before those that were used longer ago"
    assert len(runtime.removed) == 3 and set(runtime.removed) <= {"i1", "i2", "i3", "i4", "i5"}


async def test_images_younger_than_the_minimum_age_are_kept_in_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, clock = Runtime(), FakeClock()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 3000)
    images = ImageGC(cast(Client, runtime), clock, high=85, low=80, minimum_age=120, disk=lambda path: EMPTY)
    tagged(runtime, [500] * 8)
    await images.collect()
    assert runtime.removed == []
    await clock.advance(120)
    await images.collect()
    assert len(runtime.removed) == 3


def deleting(runtime: Runtime, *specified: str) -> ImageGC:
    return ImageGC(
        cast(Client, runtime),
        FakeClock(),
        high=85,
        low=80,
        minimum_age=0,
        disk=lambda path: EMPTY,
        specified=lambda: specified,
    )


def names_of(number: int, count: int) -> list[str]:
    return [f"r.test/{number}:{name:03}-{'t' * 496}" for name in range(count)]


@pytest.mark.parametrize("received", [True, False])
async def test_images_in_use_with_the_most_names_lose_names_until_the_list_is_short(
    monkeypatch: pytest.MonkeyPatch, *, received: bool
) -> None:
    runtime = Runtime()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 20_000)
    few, many = ["r.test/few:1", *names_of(9, 3)], {f"i{n}": names_of(n, 20) for n in range(4)}
    specified = many["i0"][:15]
    runtime.have = {name: Image(id=name, repo_tags=tags) for name, tags in many.items()}
    runtime.have["i9"] = Image(id="i9", repo_tags=few)
    runtime.names, runtime.largest = {}, 1 << 30 if received else 30_000
    runtime.used = [Container(image=ImageSpec(image=image)) for image in runtime.have]
    await deleting(runtime, *specified).delete_surplus_names()
    left = {
        name: [tag for tag in image.repo_tags if tag not in runtime.deleted] for name, image in runtime.have.items()
    }
    assert left["i9"] == few and runtime.removed == []
    assert {len(left[f"i{n}"]) for n in range(4)} == {8}
    assert set(left["i0"]) <= set(specified), "names that pods specify are deleted last"
    assert sum(Image(id=name, repo_tags=tags).ByteSize() for name, tags in left.items()) <= list_limit.LIST_BYTES


@pytest.mark.parametrize("length", [20, 130, 400])
async def test_a_running_collection_deletes_no_more_of_ten_thousand_names_than_is_necessary(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    runtime = Runtime()
    names = [f"r.test/{number:05}:".ljust(length, "t") for number in range(10_000)]
    runtime.have = {"i0": Image(id="i0", repo_tags=["r.test/a:1", *names])}
    runtime.names, runtime.used = {}, [Container(image=ImageSpec(image="r.test/a:1"))]
    monkeypatch.setattr(list_limit, "LIST_BYTES", runtime.have["i0"].ByteSize() // 2)
    images = deleting(runtime, "r.test/a:1")
    tasks = [asyncio.create_task(images.run()), asyncio.create_task(images.delete_names())]
    try:
        async with asyncio.timeout(30):
            while not runtime.deleted:
                await asyncio.sleep(0.001)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert runtime.removed == [] and "r.test/a:1" not in runtime.deleted

    def listed(deleted: list[str]) -> int:
        gone = set(deleted)
        return Image(id="i0", repo_tags=["r.test/a:1", *(n for n in names if n not in gone)]).ByteSize()

    assert listed(runtime.deleted) <= list_limit.LIST_BYTES < listed(runtime.deleted[:-1])


async def test_the_longest_names_are_deleted_first_and_the_sandbox_images_and_built_in_ones_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 80)
    kept = ["wherry.local/pause:2", "r.test/pause:1"]
    runtime.have = {"i0": Image(id="i0", repo_tags=[*kept, "r.test/p:1", *names_of(0, 3)])}
    runtime.info, runtime.names = {"config": '{"sandboxImage": "r.test/pause:1"}'}, {}
    await deleting(runtime).delete_surplus_names()
    assert runtime.deleted == names_of(0, 3)
    runtime.deleted = []
    monkeypatch.setattr(list_limit, "LIST_BYTES", 10)
    await deleting(runtime).delete_surplus_names()
    assert runtime.deleted == [*names_of(0, 3), "r.test/p:1"]


class Refusing(Runtime):
    """Deletes no name that ends in "1", and has an image whose status cannot be read."""

    error: CRIError = CRIError("busy", code="INTERNAL")

    async def delete_image_name(self, name: str) -> None:
        if name.endswith("1"):
            raise self.error
        await super().delete_image_name(name)

    async def image_status(self, name: str) -> Image | None:
        if name == "i1":
            raise self.error
        return await super().image_status(name)


@pytest.mark.parametrize("received", [True, False])
async def test_a_name_that_cannot_be_deleted_keeps_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, *, received: bool
) -> None:
    runtime = Refusing()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 10)
    names = [f"r.test/{n}:{end}" for n in range(3) for end in range(1, 4)]
    runtime.have = {"i0": Image(id="i0", repo_tags=names), "i1": Image(id="i1"), "i2": Image(id="i2")}
    runtime.names, runtime.largest = {}, 1 << 30 if received else 10
    await deleting(runtime).delete_surplus_names()
    kept = "r.test/2:3"
    assert set(runtime.deleted) == {name for name in names if not name.endswith("1")} - {kept}
    runtime.error = UnavailableError("away", code="UNAVAILABLE")
    with pytest.raises(UnavailableError):
        await deleting(runtime).delete_surplus_names()


class Hanging(Runtime):
    """Deletes no name before `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.answer = 0, asyncio.Event()

    async def delete_image_name(self, name: str) -> None:
        self.begun += 1
        await self.answer.wait()
        await super().delete_image_name(name)


async def test_collections_do_not_wait_for_names_which_are_deleted_only_after_a_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, clock, failures, measured = Hanging(), FakeClock(), [OSError("Input/output error")], list[str]()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 10)
    runtime.have = {"i0": Image(id="i0", repo_tags=["r.test/a:1", "r.test/a:2"], pinned=True)}
    runtime.names = {}

    def disk(path: str) -> ImageDisk:
        measured.append(path)
        if failures:
            raise failures.pop()
        return EMPTY

    images = ImageGC(cast(Client, runtime), clock, high=85, low=80, minimum_age=0, disk=disk)
    tasks = [asyncio.create_task(images.run()), asyncio.create_task(images.delete_names())]

    async def measure(times: int) -> None:
        async with asyncio.timeout(30):
            while len(measured) < times:
                await clock.advance(60)
                await asyncio.sleep(0.001)
        await settle()

    try:
        await measure(1)
        assert runtime.begun == 0, "unused images may still be there"
        await measure(4)
        async with asyncio.timeout(30):
            while not runtime.begun:
                await asyncio.sleep(0.001)
        await measure(6)
        assert runtime.begun == 1 and not any(task.done() for task in tasks)
        runtime.answer.set()
        async with asyncio.timeout(30):
            while len(runtime.deleted) < 2:
                await asyncio.sleep(0.001)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_other_runtimes_keep_their_names_and_collect_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, clock = Runtime(), FakeClock()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 3000)
    runtime.have = {"i0": Image(id="i0", repo_tags=names_of(0, 9)), "i1": Image(id="i1")}
    runtime.used = [Container(image=ImageSpec(image="i0"))]
    task = asyncio.create_task(collection(runtime, clock, FULL).run())
    async with asyncio.timeout(10):
        while not runtime.removed:
            await asyncio.sleep(0.001)
        await clock.sleeping()
    assert runtime.removed == ["i1"] and not task.done()
    task.cancel()


async def test_names_are_deleted_though_the_collection_fails_for_a_list_that_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, clock = Runtime(), FakeClock()
    monkeypatch.setattr(list_limit, "LIST_BYTES", 20_000)
    runtime.have = {f"i{n}": Image(id=f"i{n}", repo_tags=names_of(n, 20)) for n in range(4)}
    runtime.used = [Container(image=ImageSpec(image=image)) for image in runtime.have]
    runtime.names, runtime.largest = {}, 30_000
    images = collection(runtime, clock, FULL)
    tasks = [asyncio.create_task(images.run()), asyncio.create_task(images.delete_names())]
    async with asyncio.timeout(10):
        while not runtime.deleted and not any(task.done() for task in tasks):
            await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("r.test/app:1", "r.test/app:1"),
        ("app@sha256:" + "0" * 64, "docker.io/library/app@sha256:" + "0" * 64),
        ("", ""),
    ],
)
def test_names_of_pods_are_compared_as_the_runtime_lists_them(image: str, full: str) -> None:
    assert full_name(image) == full


@pytest.mark.parametrize("containerd", [False, True])
async def test_the_newest_unused_images_are_removed_until_the_list_can_be_received(*, containerd: bool) -> None:
    runtime, clock = Runtime(), FakeClock()
    images = collection(runtime, clock, EMPTY)
    tagged(runtime, [100] * 200)
    await images.collect()
    runtime.info = {"config": '{"sandboxImage": "r.test/pause:1"}'}
    runtime.have["i199"].repo_tags[0] = "r.test/pause:1"
    runtime.have["i198"].repo_tags[0] = "wherry.local/pause:2"
    runtime.names = {
        "r.test/pause:1": ImageName("r.test/pause:1", "t-i199", 0.0, pinned=False),
        "wherry.local/pause:2": ImageName("wherry.local/pause:2", "t-i198", 0.0, pinned=False),
    }
    if not containerd:
        runtime.names = None
    runtime.used = [Container(image=ImageSpec(image="i197"))]
    runtime.largest = 18_000
    await images.collect()
    assert 0 < len(runtime.removed) <= 75
    assert not {"i197", "i199"} & set(runtime.removed)
    if containerd:
        assert "i198" not in runtime.removed
        oldest = 197 - len(runtime.removed)
        assert sorted(runtime.removed) == sorted(f"i{n}" for n in range(oldest, 197))
    assert sum(image.ByteSize() for image in runtime.have.values()) <= runtime.largest


async def test_a_list_that_stays_too_large_fails_the_collection() -> None:
    runtime = Runtime()
    runtime.names, runtime.largest = {}, 10
    runtime.used = [Container(image=ImageSpec(image=image)) for image in runtime.have]
    with pytest.raises(MessageTooLargeError):
        await collection(runtime, FakeClock(), EMPTY).collect()
    assert runtime.removed == []


async def test_images_are_held_without_their_users_while_they_are_read_one_by_one() -> None:
    runtime = Runtime()
    runtime.names = {}
    runtime.have = {f"i{n}": Image(id=f"i{n}", repo_tags=names_of(n, 2), username="u" * 100_000) for n in range(3)}
    found = await list_limit._images_one_by_one(cast(Client, runtime))
    assert [list(image.repo_tags) for image in found] == [names_of(n, 2) for n in range(3)]
    assert sum(image.ByteSize() for image in found) < 10_000
