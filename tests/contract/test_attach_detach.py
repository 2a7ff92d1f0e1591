"""Volumes are attached before they are used and detached after, one node at a time, and torn from nodes that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from control.controllers.attach_detach import AttachDetachController
from control.controllers.attach_detach.plan import OUT_OF_SERVICE
from control.controllers.attach_detach.requirements import DRIVER_CHANGE_SECONDS
from control.controllers.attach_detach.timeouts import ATTACH_SECONDS
from control.controllers.context import Context
from control.controllers.pod_gc import PodGC
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.csi import attachment_name, unique_name
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running

DRIVER = "disk.csi.test"
VOLUME = unique_name(DRIVER, "h")


class World:
    """Nodes a and b, one volume with its claim, and the attach/detach controller; the test plays driver and nodes."""

    def __init__(self, server: ApiUnderTest, clock: FakeClock) -> None:
        self.client, self.clock = server.client(), clock
        self.context = Context(self.client, clock)
        self.controller = AttachDetachController(self.context.acting_as(server.account("attachdetach-controller")))
        self.collector = PodGC(self.context.acting_as(server.account("pod-garbage-collector")))

    async def make(self, kind: type[Any], body: dict[str, Any], status: dict[str, Any] | None = None) -> Any:
        made = await self.client.create(msgspec.convert(body, kind))
        if status is not None:
            name, namespace = made.metadata.name, made.metadata.namespace or ""
            made = await self.client.patch(kind, name, namespace, {"status": status}, subresource="status")
        return made

    async def fill(self, mode: str = "ReadWriteOnce") -> None:
        spec = {"accessModes": [mode], "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"name": "data", "namespace": "default"}, "spec": {**spec, "storageClassName": ""}}
        claim = await self.make(core_v1.PersistentVolumeClaim, body, {"phase": "Bound"})
        reference = {"namespace": "default", "name": "data", "uid": claim.metadata.uid}
        source = {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "claimRef": reference}
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": [mode], **source}
        await self.make(core_v1.PersistentVolume, {"metadata": {"name": "pv"}, "spec": volume})
        annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        for name in ("a", "b"):
            await self.make(core_v1.Node, {"metadata": {"name": name, "annotations": annotations}})
            await self.say(name, ready=True)

    async def pod(self, name: str, node: str) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        await self.make(core_v1.Pod, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def gone(self, pod: str, grace: int | None = 0) -> None:
        await self.client.delete(core_v1.Pod, pod, "default", grace_period_seconds=grace)

    async def say(self, node: str, *, ready: bool = True, uses: bool = False) -> None:
        """Have a node report."""
        conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
        status = {"conditions": conditions, "volumesInUse": [VOLUME] if uses else None}
        await self.client.patch(core_v1.Node, node, "", {"status": status}, subresource="status")

    async def attached(self, node: str) -> None:
        """Have the driver attach."""
        name = attachment_name(DRIVER, "h", node)
        await eventually(lambda: self.client.get(storage_v1.VolumeAttachment, name))
        status = {"status": {"attached": True}}
        await self.client.patch(storage_v1.VolumeAttachment, name, "", status, subresource="status")
        await eventually(lambda: self.is_reported(node))

    async def is_reported(self, node: str) -> bool:
        status = (await self.client.get(core_v1.Node, node)).status
        return [volume.name for volume in status.volumes_attached] == [VOLUME]

    async def on(self) -> list[str]:
        found = (await self.client.list(storage_v1.VolumeAttachment)).items
        return sorted(attachment.spec.node_name for attachment in found)

    async def is_on(self, *nodes: str) -> None:
        async def there() -> bool:
            return await self.on() == list(nodes)

        await eventually(there)

    async def event(self, pod: str, text: str) -> None:
        async def there() -> bool:
            events = (await self.client.list(core_v1.Event, "default")).items
            return any(e.involved_object.name == pod and text in (e.message or "") for e in events)

        await eventually(there)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with api_server(tmp_path) as server:
        made = World(server, FakeClock())
        await eventually(lambda: _account(made.client))
        async with running(made.context.informers.run()):
            await made.context.informers.wait_synced()
            work = [made.controller.run(), made.context.recorders.run()]
            async with running(*work):
                yield made


async def _account(client: Client) -> bool:
    body = {"metadata": {"name": "default", "namespace": "default"}}
    try:
        await client.create(msgspec.convert(body, core_v1.ServiceAccount))
    except StatusError as error:
        return error.already_exists
    return True


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
async def test_a_volume_moves_from_node_to_node_and_is_never_on_two(world: World, others: int) -> None:
    async with running(*(AttachDetachController(world.context).run() for _ in range(others))):
        await move(world)


async def move(world: World) -> None:
    await world.fill()
    await world.pod("first", "a")
    await world.attached("a")
    await world.say("a", uses=True)
    await world.event("first", 'AttachVolume.Attach succeeded for volume "pv"')
    await world.pod("second", "b")
    await world.event("second", 'Multi-Attach error for volume "pv" Volume is already used by pod(s) first')
    await world.gone("first")
    await world.event("second", "Multi-Attach error")
    assert await world.on() == ["a"] and await world.is_reported("a"), "the node still uses it"
    await world.say("a", uses=False)
    await world.is_on("b")
    while await world.is_reported("a"):  # another controller's cache may lag behind, and it writes the list once more
        await asyncio.sleep(0.05)
    await world.attached("b")


async def test_a_volume_for_many_is_attached_to_all_and_a_driver_that_attaches_nothing_is_left_alone(
    world: World,
) -> None:
    await world.fill("ReadWriteMany")
    await world.pod("first", "a")
    await world.pod("second", "b")
    await world.is_on("a", "b")
    driver = {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}}
    await world.make(storage_v1.CSIDriver, driver)
    await eventually(lambda: world.context.informers.of(storage_v1.CSIDriver).get(DRIVER))
    await world.clock.advance(DRIVER_CHANGE_SECONDS - 1)
    assert await world.on() == ["a", "b"]

    async def detached() -> bool:
        await world.clock.advance(1)
        return not await world.on()

    await eventually(detached)


async def test_a_drivers_error_is_an_event_of_the_pod(world: World) -> None:
    await world.fill()
    await world.pod("first", "a")
    name = attachment_name(DRIVER, "h", "a")
    await eventually(lambda: world.client.get(storage_v1.VolumeAttachment, name))
    status = {"status": {"attached": False, "attachError": {"message": "no such disk"}}}
    await world.client.patch(storage_v1.VolumeAttachment, name, "", status, subresource="status")
    await world.event("first", 'AttachVolume.Attach failed for volume "pv" : no such disk')


async def test_an_attachment_that_nobody_completes_is_reported_every_two_minutes(world: World) -> None:
    await world.fill()
    await world.pod("first", "a")
    await world.is_on("a")
    text = f'"pv" : timed out waiting for external-attacher of {DRIVER} CSI driver to attach volume h'

    async def reported(times: int) -> bool:
        await world.clock.advance(10)
        events = (await world.client.list(core_v1.Event, "default")).items
        return sum(e.count or 0 for e in events if (e.message or "").endswith(text)) >= times

    before = world.clock.monotonic()
    await eventually(lambda: reported(1))
    assert world.clock.monotonic() - before >= ATTACH_SECONDS
    await eventually(lambda: reported(2))


async def test_a_silent_node_keeps_its_volume_for_six_minutes(world: World) -> None:
    await world.fill()
    await world.pod("first", "a")
    await world.attached("a")
    await world.say("a", ready=False, uses=True)
    await world.gone("first")

    async def waited_for() -> bool:
        return bool(world.controller.waiting)

    await eventually(waited_for)
    await world.clock.advance(359)
    assert await world.on() == ["a"]
    await world.clock.advance(2)
    await world.is_on()


async def test_a_node_that_is_out_of_service_gives_pods_and_volumes_back_at_once(world: World) -> None:
    await world.fill()
    await world.pod("first", "a")
    await world.attached("a")
    await world.say("a", ready=False, uses=True)
    await world.gone("first", 30)
    await world.collector.collect()
    assert (await world.client.get(core_v1.Pod, "first", "default")).metadata.deletion_timestamp
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    await world.client.patch(core_v1.Node, "a", "", {"spec": {"taints": [taint]}})

    async def collected() -> bool:
        await world.collector.collect()
        return not (await world.client.list(core_v1.Pod, "default")).items

    await eventually(collected)
    await world.is_on()


async def test_attachments_that_others_made_stay(world: World) -> None:
    await world.fill()
    spec = {"attacher": DRIVER, "nodeName": "b", "source": {"persistentVolumeName": "pv"}}
    await world.make(storage_v1.VolumeAttachment, {"metadata": {"name": "by-hand"}, "spec": spec})
    await world.pod("first", "a")
    await world.attached("a")
    await world.gone("first")
    await world.is_on("b")
    assert (await world.client.get(storage_v1.VolumeAttachment, "by-hand")).metadata.deletion_timestamp is None
