"""Images that an administrator loads with `wherry image load`, beside pulls of tenants, with a real containerd."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

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
        settings = Settings(runtime_endpoint=self.daemon.endpoint)
        return await image_loading.load_archive(settings, self.archive(name))

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
    assert node.closed == []


async def test_a_pod_uses_a_loaded_image_before_images_are_listed(node: Node) -> None:
    node.abandon_a_pull("evil")
    await node.load(NAME)
    assert await node.use() == "sha256"
    await node.list_images()
    assert await node.use() == "sha256" and node.closed == []


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
    labels = {LOADED: f"sha256:{'0' * 64}", f"io.containerd.image.{LOADED}": "x"}
    private.push(images.Image(f"{private.host}/team/labelled:1", labels=labels))
    assert (await outcome(node.manager, "owner", "team/labelled:1", "Always", hub_secret())).startswith("sha256:")
    names = await node.client.containerd.image_names("docker.io/team/")
    assert names and not any(LOADED in name.labels for name in names)
    assert await node.client.containerd.labelled_image_names(LOADED) == []


async def test_a_loaded_image_stays_open_when_a_pull_of_its_name_succeeds_later(node: Node, private: Registry) -> None:
    """The pull replaces the name, and its label with it."""
    private.push(images.Image(f"{private.host}/team/copy:1", labels={"of": "test"}))
    node.access.abandoned(node.access.begin("team/copy:1"))
    assert await node.load("docker.io/team/copy:1") == ["docker.io/team/copy:1"]
    pulled = await outcome(node.manager, "other", "team/copy:1", "Always", hub_secret())
    assert pulled.startswith("sha256:") and await node.use("team/copy:1") == "sha256"
    await node.list_images()
    node.start()
    assert await node.use("team/copy:1") == "sha256"
