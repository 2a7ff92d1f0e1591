"""A pod whose sync holds the event loop: it is stopped, pods of other namespaces start, and it is synced later."""

from __future__ import annotations

import gc
import logging

import pytest

from agent import step_shares
from agent.lifecycle import container_index
from agent.pods import worker
from agent.pods.context import PodContext
from agent.pods.steps.sync import sync
from kube.api import core_v1
from kube.step_limit import Shares, sampling
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest, eventually


async def test_a_pod_that_holds_the_loop_is_stopped_and_others_start(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, tries = Shares("test", 0.2, 0.2, 5.0), list[str]()

    async def held(context: PodContext) -> None:
        tries.append(context.state.pod.metadata.name or "")
        while tries == ["endless"]:
            pass
        await sync(context)

    monkeypatch.setattr(worker, "sync", held)
    monkeypatch.setattr(step_shares, "shares", shares)
    with sampling():
        await create(node, "endless")
        while not shares.delay("default"):
            await node.client.list(core_v1.Node)
        await create(node, "beside")
        assert "beside" not in tries, "its namespace has to wait"
        await node.ready("endless")
        await node.ready("beside")


_TRUE = {"exec": {"command": ["true"]}}
_PODS = {
    "plain": container(name="only-here"),
    "probes": container(name="only-here", livenessProbe={**_TRUE, "initialDelaySeconds": 10**8}, readinessProbe=_TRUE),
    "crash loop": container("exit 1", name="only-here"),
    "hook": container(name="only-here", lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "sleep 100"]}}}),
}


@pytest.mark.parametrize("kind", _PODS)
async def test_nothing_is_kept_of_the_spec_of_a_pod_that_is_gone(
    node: NodeUnderTest, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.CRITICAL, "agent")  # pytest keeps the records, and those of errors have their frames

    async def indexed() -> bool:
        gc.collect()
        return any("only-here" in index.named for index in tuple(container_index._indices.values()))

    await create(node, "short", _PODS[kind])
    await eventually(indexed, "its containers are looked up")
    await node.wait("short", lambda pod: bool(pod.status.container_statuses and pod.status.pod_ip))
    await node.delete("short", 0)
    await node.gone("short")

    async def forgotten() -> bool:
        return not await indexed()

    await eventually(forgotten, "its spec is kept")
