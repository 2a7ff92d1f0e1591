"""Volume limits of a driver on a node, refreshed as often as its CSIDriver says."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

from cri.fake import FakeRuntime
from kube.api import storage_v1
from tests.support.control import ApiUnderTest
from tests.support.csi_driver import CSIDriver
from tests.support.node import FastClock, agent_node, eventually

NAME = "disk.csi.test"


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
