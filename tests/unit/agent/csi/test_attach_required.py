"""Pods start without an attachment as soon as their driver's CSIDriver object no longer requires one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi.attachments import Attachments
from agent.csi.layout import Layout
from agent.csi.publishing import Publisher
from agent.csi.volumes import CSIVolumes
from agent.volumes.csi_volume import Ready, Volume
from agent.volumes.payload import VolumeError
from kube.api import core_v1, storage_v1
from kube.csi import attachment_name
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

VOLUME = Volume(name="pv", driver="d", handle="h", pod_volume="data")
Context = dict[str, str]


class Driver:
    """Records the publish context of each call."""

    def __init__(self) -> None:
        self.staged: list[Context] = []
        self.published: list[tuple[Context, Context]] = []

    def get(self, name: str) -> Driver:
        return self

    find = get

    async def can(self, ability: int) -> bool:
        return False

    async def stages(self) -> bool:
        return True

    async def stage(self, handle: str, path: str, capability: Any, *, published: Context, **more: Any) -> None:
        self.staged.append(dict(published))

    async def publish(
        self, handle: str, target: str, capability: Any, *, published: Context, context: Context, **more: Any
    ) -> None:
        self.published.append((dict(published), dict(context)))

    async def unstage(self, handle: str, path: str) -> None: ...

    async def unpublish(self, handle: str, target: str) -> None: ...


class Node:
    """The node's volumes, its status, and the CSIDriver object of the driver "d"."""

    def __init__(self, root: Path) -> None:
        self.root, self.api, self.clock, self.driver = root, LaggingAPI(), FakeClock(), Driver()
        self.layout, self.reported = Layout(root, root / "pods"), dict[str, list[str]]()
        self.restart()

    def restart(self) -> None:
        nothing: Any = None
        drivers: Any = self.driver
        client = self.api.client()
        self.attachments = Attachments(client, "node", request_report=self.report, clock=self.clock)
        publisher = Publisher(client, "node", self.layout, nothing)
        self.volumes = CSIVolumes(client, drivers, self.attachments, self.layout, publisher, nothing, clock=self.clock)
        self.report()

    def report(self, attached: bool | None = None) -> None:
        """Write the node's status; `attached` is what the attach/detach controller lists."""
        if attached is not None:
            self.reported["volumesAttached"] = [{"name": VOLUME.unique_name, "devicePath": ""}] if attached else []  # type: ignore[list-item]
        status = {**self.reported, "volumesInUse": self.attachments.in_use()}
        self.api.put(msgspec.convert({"metadata": {"name": "node"}, "status": status}, core_v1.Node))

    def attach(self) -> None:
        """Have the driver's controller attach the volume."""
        body = {
            "metadata": {"name": attachment_name("d", "h", "node")},
            "spec": {"attacher": "d", "nodeName": "node", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": True, "attachmentMetadata": {"device": "/dev/x"}},
        }
        self.api.put(msgspec.convert(body, storage_v1.VolumeAttachment))
        self.report(attached=True)

    def say(self, **spec: Any) -> None:
        self.api.put(msgspec.convert({"metadata": {"name": "d"}, "spec": spec}, storage_v1.CSIDriver))

    async def set_up(self, name: str) -> Ready:
        body = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"containers": []}}
        return await self.volumes.set_up(msgspec.convert(body, core_v1.Pod), VOLUME)

    async def waiting(self, name: str) -> asyncio.Task[Ready]:
        """Return a task that sets a pod up and waits for its attachment."""
        task = asyncio.create_task(self.set_up(name))
        await self.clock.sleeping()
        return task

    async def done(self, task: asyncio.Task[Ready]) -> None:
        for _ in range(5):
            await self.clock.advance(1)
        async with asyncio.timeout(30):
            await task

    @property
    def in_use(self) -> bool:
        return self.attachments.in_use() != []


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_pod_that_waits_for_an_attachment_starts_when_its_driver_needs_none(node: Node) -> None:
    task = await node.waiting("web")
    assert node.in_use
    node.say(attachRequired=False, podInfoOnMount=True)
    await node.done(task)
    assert not node.in_use, "the attachment may be deleted"
    ((published, context),) = node.driver.published
    assert node.driver.staged == [{}] and published == {}
    assert context["csi.storage.k8s.io/pod.name"] == "web", "by the object as it is now"


async def test_a_volume_whose_wait_ended_is_released_by_the_next_try(node: Node) -> None:
    node.say()
    task = await node.waiting("web")
    await node.clock.advance(200)
    with pytest.raises(VolumeError, match="timed out waiting for external-attacher"):
        await task
    node.say(attachRequired=False)
    await node.set_up("web")
    assert not node.in_use and len(node.driver.published) == 1


async def test_what_a_driver_asks_for_is_read_after_the_wait(node: Node) -> None:
    node.say(podInfoOnMount=False)
    task = await node.waiting("web")
    node.say(podInfoOnMount=True)
    node.attach()
    await node.done(task)
    ((published, context),) = node.driver.published
    assert published == {"device": "/dev/x"} and "csi.storage.k8s.io/pod.name" in context


async def test_a_volume_that_is_mounted_with_its_attachment_stays_in_use_also_for_the_next_agent(node: Node) -> None:
    node.say(requiresRepublish=True)
    task = await node.waiting("web")
    node.attach()
    await node.done(task)
    node.say(attachRequired=False, requiresRepublish=True)
    await node.set_up("web")
    await node.set_up("other")
    assert node.in_use and [published for published, _ in node.driver.published] == [{"device": "/dev/x"}, {}, {}]
    for _ in range(2):
        node.restart()
        await node.volumes.restore()
        assert node.in_use, "or it is detached while pods have it mounted"
        await node.set_up("web")
    await node.volumes.release("web")
    assert node.in_use
    await node.volumes.release("other")
    assert not node.in_use


async def test_a_volume_of_a_driver_without_attachments_is_never_in_use(node: Node) -> None:
    node.say(attachRequired=False)
    await node.set_up("web")
    node.restart()
    await node.volumes.restore()
    assert not node.in_use
    await node.volumes.release("web")
