"""Pods whose syncs hold the event loop: a long step is stopped, short ones are spread, and others' pods start meanwhile."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import time

import pytest

from agent import step_shares
from agent.lifecycle import container_index
from agent.pods import worker
from agent.pods.context import PodContext
from agent.pods.steps.sync import sync
from kube.api import core_v1
from kube.fair_steps import FairSteps
from kube.step_limit import sampling
from kube.step_shares import Shares
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


async def test_syncs_that_are_due_at_once_are_spread_and_charged(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of an object that all these pods name, or failures of their probes: each has short steps."""
    pods, seconds = 12, 0.02
    released, order, began = asyncio.Event(), list[str](), list[str]()

    async def held(context: PodContext) -> None:
        began.append(context.state.pod.metadata.name or "")
        await released.wait()
        if began:
            burn(seconds)
            order.append("sync")
        await sync(context)

    monkeypatch.setattr(worker, "sync", held)
    fair = FairSteps(step_shares.ITERATION_SECONDS)
    shares = Shares("test", pods * seconds / 2, 0.01, 60.0, fair, every_step=True)
    monkeypatch.setattr(step_shares, "shares", shares)
    for number in range(pods):
        await create(node, f"pod-{number}")
    while len(began) < pods:
        await asyncio.sleep(0.01)
    released.set()
    while order.count("sync") < pods:
        await asyncio.sleep(0)
        order.append("")
    began.clear()
    assert max(len(list(run)) for what, run in itertools.groupby(order) if what) <= 2
    assert shares.delay("default"), "the namespace's next syncs wait"


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


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
