"""Images that an administrator loads with `wherry image load`, beside pulls of tenants, with a real containerd."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agent.images.garbage_collection import ImageDisk, ImageGC
from agent.images.image_access import ImageAccess
from agent.images.names import LOADED
from cri.client import Client
from kube.clock import SYSTEM
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.image_pods import docker_hub_at, hub_secret, manager, outcome
from tests.support.image_records import NOW
from tests.support.registry import Registry, machine, registry
from wherry import image_loading
from wherry import images as wherry_images
from wherry.settings import Settings

PORT = 5001
NAME, PUSHED = "registry.test/app:1", f"127.0.0.1:{PORT}/evil/copy:1"


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    extra = docker_hub_at(tmp_path_factory.mktemp("hosts"), PORT)
    with start_containerd(f"loaded-{os.getpid()}", load=[images.pause()], extra_config=extra) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def private(containerd: Containerd) -> Iterator[Registry]:
    with registry(machine(containerd), PORT, private=True) as private:
        yield private


class Node:
    """A node whose image manager may be started again; `closed` are the images that records have closed."""

    def __init__(self, client: Client, daemon: Containerd, folder: Path) -> None:
        self.client, self.daemon, self.folder = client, daemon, folder
        self.settings = Settings(runtime_endpoint=daemon.endpoint)
        self.closed: list[tuple[str, Sequence[str]]] = []
        self.start()

    def start(self) -> None:
        self.access = ImageAccess(
            self.folder / "records", lambda: NOW, closed=lambda name, _, found: self.closed.append((name, found))
        )
        self.access.load()
        self.manager = manager(self.client, self.access)

    async def list_images(self) -> None:
        disk = ImageDisk(100 << 30, 100 << 30)
        seen = self.access.prune
        collection = ImageGC(self.client, SYSTEM, high=85, low=80, minimum_age=0.0, disk=lambda _: disk, seen=seen)
        await collection.collect()

    def archive(self, name: str) -> Path:
        return images.archive(self.folder / "image.tar", [images.Image(name, labels={"of": "test"})])

    async def load(self, name: str) -> list[str]:
        return await image_loading.load_archive(self.settings, self.archive(name))

    async def labels(self) -> list[str]:
        """Return the labels of loaded images, of names and IDs."""
        names = await self.client.containerd.image_names("")
        return [label for name in names for label in name.labels if LOADED in label]

    def abandon_a_pull(self, namespace: str) -> None:
        self.access.abandoned(self.access.begin(NAME, namespace=namespace))

    async def use(self, name: str = NAME) -> str:
        return (await outcome(self.manager, "owner", name, "Never")).partition(":")[0]


@pytest.fixture
async def node(tmp_path: Path, containerd: Containerd) -> AsyncIterator[Node]:
    async with Client(containerd.endpoint) as client:
        yield Node(client, containerd, tmp_path)
        for image in await client.images.list_images():
            await client.images.remove_image(image.id)


async def test_a_loaded_image_is_open_although_a_pull_of_its_name_was_abandoned(node: Node) -> None:
    node.abandon_a_pull("evil")
    assert await node.load(NAME) == [NAME]
    await node.list_images()
    for _ in range(2):
        assert await node.use() == "sha256", "also after a restart"
        node.start()
        node.abandon_a_pull("evil")


async def test_a_pod_uses_a_loaded_image_before_images_are_listed(node: Node) -> None:
    node.abandon_a_pull("evil")
    await node.load(NAME)
    assert await node.use() == "sha256"
    await node.list_images()
    assert await node.use() == "sha256"


async def test_an_image_that_a_record_has_closed_is_reported_and_opened_by_loading_it(node: Node) -> None:
    for namespace in ("evil", "other"):
        node.abandon_a_pull(namespace)
    node.daemon.ctr("images", "import", str(node.archive(NAME)))
    await node.list_images()
    await node.list_images()
    assert node.closed == [(NAME, ["evil", "other"])]
    assert await node.use() == "ErrImageNeverPull"
    await node.load(NAME)
    assert await node.use() == "sha256"


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_image_that_a_tenant_has_pulled_is_open_under_the_name_that_is_loaded(
    node: Node, private: Registry, *, is_listed: bool
) -> None:
    private.push(images.Image(f"{private.host}/team/copy:1", labels={"of": "test"}))
    pulled = await outcome(node.manager, "owner", "team/copy:1", "Always", hub_secret())
    assert pulled.startswith("sha256:")
    await node.load(NAME)
    if is_listed:
        await node.list_images()
    found = await node.client.images.image_status(NAME)
    assert found is not None and found.id == pulled and await node.use() == "sha256"
    assert await node.use("team/copy:1") == "ErrImageNeverPull"


async def test_no_pull_labels_an_image_as_loaded(node: Node, private: Registry) -> None:
    name = "docker.io/team/labelled:1"
    labels = {f"{LOADED}{name}": "true", f"io.containerd.image.{LOADED}{name}": "true"}
    private.push(images.Image(f"{private.host}/team/labelled:1", labels=labels))
    assert (await outcome(node.manager, "owner", "team/labelled:1", "Always", hub_secret())).startswith("sha256:")
    assert await node.client.containerd.image_names("docker.io/team/") and await node.labels() == []


@pytest.mark.parametrize("compression", [1, 9])
@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_loaded_image_is_open_whenever_a_pull_of_its_name_succeeds(
    node: Node, private: Registry, *, when: str, compression: int
) -> None:
    """A pull replaces the labels of the name, and with another compression the manifest that name and ID mean."""
    name = "docker.io/team/copy:1"
    private.push(images.Image(f"{private.host}/team/copy:1", labels={"of": "test"}, compression=compression))
    real = node.client.images.pull_image

    async def pull_image(*arguments: Any, **options: Any) -> str:
        if when == "during":
            await node.load(name)
        return await real(*arguments, **options)

    if when == "before":
        await node.load(name)
    with mock.patch.object(node.client.images, "pull_image", pull_image):
        pulled = await outcome(node.manager, "other", "team/copy:1", "Always", hub_secret())
    if when == "after":
        await node.load(name)
    assert pulled.startswith("sha256:") and await node.labels() == [f"{LOADED}{name}"]
    for _ in range(2):
        assert await node.use("team/copy:1") == "sha256", "also after a restart"
        await node.list_images()
        node.start()
    assert await node.use(pulled) == "ErrImageNeverPull", "the label opens names of the repository alone"


@pytest.mark.parametrize("compression", [1, 9])
async def test_a_pulled_image_is_private_again_when_its_loaded_name_is_removed(
    node: Node, private: Registry, compression: int
) -> None:
    pushed = images.Image(f"{private.host}/team/copy:1", labels={"of": "test"}, compression=compression)
    private.push(pushed)
    private.push(replace(pushed, name=f"{private.host}/team/other:1"))
    assert (await outcome(node.manager, "owner", "team/other:1", "Always", hub_secret())).startswith("sha256:")
    await node.load("docker.io/team/copy:1")
    assert (await outcome(node.manager, "owner", "team/copy:1", "Always", hub_secret())).startswith("sha256:")
    assert await node.use("team/copy:1") == "sha256"
    await wherry_images.remove(node.settings, ["team/copy:1"])
    assert await node.labels() == []
    assert (await outcome(node.manager, "owner", "team/copy:1", "Always", hub_secret())).startswith("sha256:")
    assert await node.use("team/copy:1") == "ErrImageNeverPull"


async def test_labels_are_removed_with_the_image(node: Node) -> None:
    await node.load(NAME)
    assert await node.labels() == [f"{LOADED}{NAME}"]
    await wherry_images.remove(node.settings, [NAME])
    assert await node.client.images.image_status(NAME) is None and await node.labels() == []
    node.daemon.ctr("images", "import", str(node.archive(NAME)))
    assert await node.labels() == []
