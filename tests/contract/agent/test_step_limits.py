"""A pod whose sync holds the event loop: it is stopped, pods of other namespaces start, and it is synced later."""

from __future__ import annotations

import pytest

from agent.pods import child_task, worker
from agent.pods.context import PodContext
from agent.pods.steps.sync import sync
from kube.api import core_v1
from kube.step_limit import Shares, sampling
from tests.support.fake_node import create
from tests.support.node import NodeUnderTest


async def test_a_pod_that_holds_the_loop_is_stopped_and_others_start(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, tries = Shares("test", 0.2, 0.2, 5.0), list[str]()

    async def held(context: PodContext) -> None:
        tries.append(context.state.pod.metadata.name)
        while tries == ["endless"]:
            pass
        await sync(context)

    monkeypatch.setattr(worker, "sync", held)
    monkeypatch.setattr(child_task, "_shares", shares)
    with sampling():
        await create(node, "endless")
        while not shares.delay("default"):
            await node.client.list(core_v1.Node)
        await create(node, "beside")
        assert "beside" not in tries, "its namespace has to wait"
        await node.ready("endless")
        await node.ready("beside")
