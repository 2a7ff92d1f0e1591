"""Pods that are being terminated for as long as their authors like: they have their resources until they are gone."""

from __future__ import annotations

from typing import Any

from kube.api import core_v1
from tests.support.fake_node import calls, container, create
from tests.support.node import eventually

LONG = 100_000
"""Seconds of grace."""


async def test_a_pod_that_is_being_terminated_takes_room_until_it_is_gone(node: Any, runtime: Any) -> None:
    found = await node.client.get(core_v1.Node, "node-1")
    whole = {"requests": {"cpu": str(found.status.allocatable["cpu"])}}
    await create(node, "leaving", container("cat", resources=whole), terminationGracePeriodSeconds=LONG)
    await node.ready("leaving")
    await node.delete("leaving")

    async def is_stopping() -> bool:
        return len(calls(runtime, "StopContainer")) == 1

    await eventually(is_stopping, "the container is being stopped")
    await create(node, "second", container("cat", resources=whole))
    refused = await node.wait("second", lambda pod: pod.status.phase == "Failed")
    assert refused.status.reason == "OutOfcpu"
    await node.delete("leaving", grace=0)
