"""Changes of a CSIDriver object apply to pods that run."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.csi.messages import Ability
from cri.fake import FakeRuntime
from kube.api import storage_v1
from tests.support.control import ApiUnderTest
from tests.support.csi_pods import NAME, claim, driver_on, short_place, spec
from tests.support.node import FastClock, agent_node, eventually

ABILITIES = (Ability.STAGE_UNSTAGE_VOLUME,)
"""Without expansion, which has volumes set up again in any case."""


async def test_republishing_starts_when_it_is_required_and_again_when_the_object_is_recreated(
    runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    with short_place() as place:
        async with agent_node(place, runtime, api, clock=clock) as node:
            about: dict[str, Any] = {"attachRequired": False}
            async with driver_on(node, place, about=about, sidecars=False, abilities=ABILITIES) as driver:
                await node.create("web", spec(await claim(node.client, "a")))
                calls = 0

                async def published() -> bool:
                    return len(driver.made("NodePublishVolume")) > calls

                await eventually(published, "the volume is published")
                assert len(driver.made("NodePublishVolume")) == 1
                calls = 1
                await node.client.patch(storage_v1.CSIDriver, NAME, "", {"spec": {"requiresRepublish": True}})
                await eventually(published, "the volume is published again")
                await node.client.delete(storage_v1.CSIDriver, NAME)
                body = {"metadata": {"name": NAME}, "spec": {**about, "requiresRepublish": True}}
                await node.client.create(msgspec.convert(body, storage_v1.CSIDriver))
                calls = len(driver.made("NodePublishVolume"))
                await eventually(published, "the volume is published for the new object")
                assert len(driver.made("NodeStageVolume")) == 1
                await node.delete("web")
                await node.gone("web")
