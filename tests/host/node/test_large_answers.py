"""A containerd whose lists are larger than its messages may be: images are removed, and leftovers too.

Its limit is lowered instead of having thousands of images and containers; the default is 16 MiB.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from agent.config import OwnContainerd
from agent.images import list_limit
from agent.images.garbage_collection import ImageDisk, ImageGC
from agent.metrics.counters import Counter
from agent.orphans.machine import CONTAINER
from agent.orphans.sweep import Sweep
from cri.client import Client
from cri.errors import MessageTooLargeError, UnavailableError
from cri.messages import api
from kube.clock import SYSTEM
from tests.support.containerd import CNI_PLUGINS, Containerd, start_containerd
from tests.support.images import BUSYBOX_IMAGE, PAUSE_IMAGE, busybox_of
from tests.support.node import eventually

BYTES = 16 << 10
IMAGES = 80
LONG = "a" * 200


@pytest.fixture
async def containerd() -> AsyncIterator[Containerd]:
    with start_containerd(f"large-{os.getpid()}") as daemon:
        yield daemon


def limit(daemon: Containerd, size: int) -> None:
    """Restart containerd with a limit of its messages."""
    config = daemon.folder / "config.toml"
    config.write_text(config.read_text().replace("[grpc]\n", f"[grpc]\n  max_send_message_size = {size}\n"))
    daemon.restart()


async def start(daemon: Containerd, client: Client, name: str, environments: Iterable[str] = ("",)) -> str:
    """Start a sandbox with a container for each environment; return its ID."""
    metadata = api.PodSandboxMetadata(name=name, uid=name, namespace="default")
    linux = api.LinuxPodSandboxConfig(cgroup_parent=f"/{daemon.name}/{name}")
    config = api.PodSandboxConfig(metadata=metadata, linux=linux, log_directory=str(daemon.folder / "logs"))
    made = await client.runtime.run_pod_sandbox(config)
    for number, environment in enumerate(environments):
        container = api.ContainerConfig(
            metadata=api.ContainerMetadata(name=f"c{number}"),
            image=api.ImageSpec(image=BUSYBOX_IMAGE),
            command=["sleep", "1000"],
            envs=[api.KeyValue(key="LARGE", value=environment)],
            log_path=f"c{number}.log",
        )
        await client.runtime.create_container(made, container, config)
    return made


async def answers(client: Client) -> None:
    """Wait until CRI has read what there is."""

    async def listed() -> bool:
        try:
            return bool(await client.runtime.list_containers())
        except UnavailableError:
            return False

    await eventually(listed, "CRI has read its containers")


def collection(client: Client, **more: object) -> ImageGC:
    return ImageGC(
        client,
        SYSTEM,
        high=85,
        low=80,
        minimum_age=0,
        disk=lambda path: ImageDisk(1000, 1000),
        **more,  # type: ignore[arg-type]
    )


async def test_unused_images_are_removed_though_they_cannot_be_listed(containerd: Containerd) -> None:
    containerd.load(busybox_of(f"r{number}.test", f"{LONG}:1") for number in range(IMAGES))
    async with Client(containerd.endpoint) as client:

        async def imported() -> bool:
            return len(await client.images.list_images()) == IMAGES + 2

        await eventually(imported, "CRI knows all images")
        await start(containerd, client, "user")
    limit(containerd, BYTES)
    async with Client(containerd.endpoint) as client:
        await answers(client)
        with pytest.raises(MessageTooLargeError):
            await client.images.list_images()
        assert len(await client.containerd.image_ids()) == IMAGES + 2, "IDs are listed in parts"
        await collection(client).collect()
        left = [tag for image in await client.images.list_images() for tag in image.repo_tags]
        assert {BUSYBOX_IMAGE, PAUSE_IMAGE} <= set(left) and 2 < len(left) < IMAGES
        assert await client.images.image_status(BUSYBOX_IMAGE) is not None


@pytest.mark.parametrize("received", [True, False])
async def test_surplus_names_of_an_image_in_use_are_deleted(
    containerd: Containerd, monkeypatch: pytest.MonkeyPatch, *, received: bool
) -> None:
    monkeypatch.setattr(list_limit, "LIST_BYTES", 4096)
    names = [f"r.test/{LONG}:{number:02}" for number in range(40)]
    containerd.ctr("images", "tag", BUSYBOX_IMAGE, *names)
    async with Client(containerd.endpoint) as client:

        async def tags() -> list[str]:
            found = await client.images.image_status(BUSYBOX_IMAGE)
            return list(found.repo_tags) if found is not None else []

        async def has(number: int) -> bool:
            return len(await tags()) == number

        await eventually(lambda: has(41), "CRI knows all names")
        sandbox = await start(containerd, client, "user")
    if not received:
        # The list has the pause image, too, so it is larger than the status of this image.
        limit(containerd, await size_of(containerd, BUSYBOX_IMAGE) + 64)
    async with Client(containerd.endpoint) as client:
        await answers(client)
        if not received:
            with pytest.raises(MessageTooLargeError):
                await client.images.list_images()
        await collection(client, specified=lambda: [names[20], BUSYBOX_IMAGE]).delete_surplus_names()

        async def shorter() -> bool:
            return sum(image.ByteSize() for image in await client.images.list_images()) <= list_limit.LIST_BYTES

        await eventually(shorter, "CRI has forgotten the names")
        left = {tag for image in await client.images.list_images() for tag in image.repo_tags}
        assert {names[20], BUSYBOX_IMAGE, PAUSE_IMAGE} <= left and len(left) > 10
        (container,) = await client.runtime.list_containers(sandbox_id=sandbox)
        await client.runtime.start_container(container.id)
        assert (await client.runtime.container_status(container.id)).state == api.ContainerState.CONTAINER_RUNNING


async def size_of(daemon: Containerd, image: str) -> int:
    """Return the bytes of an image's status."""
    async with Client(daemon.endpoint) as client:
        found = await client.images.image_status(image)
        assert found is not None
        return api.ImageStatusResponse(image=found).ByteSize()


async def test_leftovers_are_removed_beside_containers_of_large_environments(containerd: Containerd) -> None:
    size, removed = 128 << 10, Counter("removed", "", ("kind",))
    leftover = "1" * 64
    async with Client(containerd.endpoint) as client:
        # The last is larger than a message by itself: JSON escapes each character.
        await start(containerd, client, "large", ["v" * 80_000] * 3 + ["<" * 40_000])
    containerd.ctr("containers", "create", "--label", "io.cri-containerd.kind=container", BUSYBOX_IMAGE, leftover)
    containerd.ctr("containers", "create", BUSYBOX_IMAGE, "by-hand")
    limit(containerd, size)
    of = OwnContainerd(
        socket=containerd.socket,
        root=containerd.root,
        state=containerd.folder / "state",
        reservations=containerd.folder / "ipam/test",
        network=containerd.folder / "net.d/10-test.conflist",
        plugins=(Path(CNI_PLUGINS),),
    )
    async with Client(containerd.endpoint) as client:
        await answers(client)
        with pytest.raises(MessageTooLargeError):
            await client.containerd.containers()
        await Sweep(of, client, 120.0, clock=SYSTEM, removed=removed).sweep()
        assert removed.value(CONTAINER) == 1 and await client.containerd.container(leftover) is None
        assert [each.id for each in await client.containerd.containers_of_others()] == ["by-hand"]
        assert len(await client.runtime.list_containers()) == 4
    containerd.ctr("containers", "delete", "by-hand")
