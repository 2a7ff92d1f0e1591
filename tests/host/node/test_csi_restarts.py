"""Whenever the agent ends between two steps of a driver's, the next one finishes or undoes what was begun; nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.volumes import mounts
from kube.api import core_v1, storage_v1
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.csi_pods import claim, controllers, driver_on, short_place, spec
from tests.support.node import NodeUnderTest, agent_node, eventually, is_ready


@pytest.fixture
def place() -> Iterator[Path]:
    with short_place() as made:
        yield made


@pytest.fixture
async def node(place: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(place, containerd, server) as node, controllers(server.client()):
        yield node


async def nothing_left(node: NodeUnderTest) -> None:
    """Wait until no mount, note, folder or attachment is left."""

    async def clean() -> bool:
        status = (await node.client.get(core_v1.Node, "node-1")).status
        attachments = (await node.client.list(storage_v1.VolumeAttachment)).items
        points = await asyncio.to_thread(mounts.mount_points, node.config.root_dir)
        below = [point for point in points if point != str(node.config.root_dir)]  # that is for propagation
        notes = await asyncio.to_thread(lambda: list(node.config.root_dir.rglob("vol_data.json")))
        return not (below or notes or attachments or status.volumes_in_use or status.volumes_attached)

    await eventually(clean, "something is left", 90)


async def test_an_agent_that_ends_amid_a_step_leaves_nothing_behind(node: NodeUnderTest, place: Path) -> None:
    async with driver_on(node, place, about={"attachRequired": True}) as driver:
        volume = await claim(node.client, "a")
        steps = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
        for number, step in enumerate(steps):
            name = f"pod-{number}"
            before = len(driver.made(step))
            held = driver.held[step] = asyncio.Event()

            async def reached(step: str = step, before: int = before) -> bool:
                return len(driver.made(step)) > before

            await node.create(name, spec(volume))
            if "Un" in step:
                await node.wait(name, is_ready, 90)
                await node.delete(name)
            await eventually(reached, f"{step} was not called", 90)
            await node.stop()
            del driver.held[step]
            held.set()
            await node.start()
            if "Un" not in step:
                await node.wait(name, is_ready, 90)
                await node.delete(name)
            await node.gone(name, 90)
            await nothing_left(node)


async def test_a_volume_that_never_came_is_let_go_of_with_its_pod(node: NodeUnderTest, place: Path) -> None:
    async with driver_on(node, place, about={"attachRequired": True}, sidecars=False):
        await node.create("waits", spec(await claim(node.client, "a")))

        async def in_use() -> bool:
            return bool((await node.client.get(core_v1.Node, "node-1")).status.volumes_in_use)

        await eventually(in_use, "the node says that it is about to use the volume")
        await node.delete("waits")
        await node.gone("waits")
        await nothing_left(node)
