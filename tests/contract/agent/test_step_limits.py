"""A pod whose sync holds the event loop: it is stopped, pods of other namespaces start, and it is synced later."""

from __future__ import annotations

import pytest

from agent.lifecycle import container_index
from agent.pods import child_task, worker
from agent.pods.context import PodContext
from agent.pods.steps.sync import sync
from kube.api import core_v1
from kube.step_limit import Shares, sampling
from tests.support.fake_node import create
from tests.support.node import NodeUnderTest, eventually


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


async def test_nothing_is_kept_of_the_containers_of_a_pod_that_is_gone(node: NodeUnderTest) -> None:
    await create(node, "short")
    uid = (await node.ready("short")).metadata.uid
    assert uid in container_index._indices._pods
    await node.delete("short", 0)
    await node.gone("short")

    async def forgotten() -> bool:
        return uid not in container_index._indices._pods

    await eventually(forgotten, "the index of its containers is kept")
