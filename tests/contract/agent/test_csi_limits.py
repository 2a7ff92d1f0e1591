"""Volume limits of a driver on a node, refreshed as often as its CSIDriver says."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

from cri.fake import FakeRuntime
from kube.api import core_v1, storage_v1
from kube.csi import attachment_name
from tests.support.control import ApiUnderTest
from tests.support.csi_driver import CSIDriver
from tests.support.csi_pods import NAME, claim, driver_on, short_place, spec
from tests.support.node import FastClock, agent_node, eventually


async def test_a_drivers_number_of_volumes_is_read_again(
    runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    with tempfile.TemporaryDirectory(prefix="csi-") as place:  # sockets' paths have to be short
        async with agent_node(Path(place), runtime, api, clock=clock) as node:
            body = {"metadata": {"name": NAME}, "spec": {"nodeAllocatableUpdatePeriodSeconds": 10}}
            await node.client.create(msgspec.convert(body, storage_v1.CSIDriver))
            driver = CSIDriver(NAME, Path(place) / "driver", limit=5)

            async def counts() -> list[int | None]:
                drivers = (await node.client.get(storage_v1.CSINode, "node-1")).spec.drivers
                return [found.allocatable.count if found.allocatable else None for found in drivers]

            async def seven() -> bool:
                return await counts() == [7]

            async with driver.serving(node.config.plugins_registry_dir) as registration:
                async with asyncio.timeout(30):
                    assert await registration.registration_errors.get() == ""
                assert await counts() == [5]
                driver.limit = 7
                await eventually(seven, "the new number is told")


async def test_a_pod_fails_where_the_node_has_as_many_volumes_as_it_can(
    runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    with short_place() as place:
        async with agent_node(place, runtime, api, clock=clock) as node:
            about = {"nodeAllocatableUpdatePeriodSeconds": 1000}
            async with driver_on(node, place, about=about, sidecars=False, limit=5) as driver:
                found = {
                    "metadata": {"name": attachment_name(NAME, "h-a", "node-1")},
                    "spec": {"attacher": NAME, "nodeName": "node-1", "source": {"persistentVolumeName": "pv-a"}},
                }
                attachment = await node.client.create(msgspec.convert(found, storage_v1.VolumeAttachment))
                attachment.status = msgspec.convert(
                    {"attached": False, "attachError": {"message": "full", "errorCode": 8}},
                    storage_v1.VolumeAttachmentStatus,
                )
                await node.client.update_status(attachment)
                driver.limit = 2
                await node.create("web", spec(await claim(node.client, "a")))

                async def failed() -> bool:
                    return (await node.get("web")).status.phase == "Failed"

                await eventually(failed, "the pod is rejected")
                status = (await node.get("web")).status
                assert status.reason == "VolumeAttachmentLimitExceeded"
                assert (status.message or "").startswith(
                    "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. "
                    "unmounted volumes=[data], unattached volumes=[data]"
                )
                (known,) = (await node.client.get(storage_v1.CSINode, "node-1")).spec.drivers
                assert known.allocatable is not None and known.allocatable.count == 2, "the scheduler knows it now"

                async def released() -> bool:
                    return not (await node.client.get(core_v1.Node, "node-1")).status.volumes_in_use

                await eventually(released, "the volume may be detached")
