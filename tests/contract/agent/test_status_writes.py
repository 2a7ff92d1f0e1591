"""How often the API is told of a pod, and that what is not told at once is not lost."""

from __future__ import annotations

import asyncio

import pytest

from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.informer import Informer
from tests.support.fake_node import container, create
from tests.support.node import FastClock, NodeUnderTest


@pytest.mark.parametrize("clock", [FastClock(1.0)])
async def test_a_pod_that_starts_at_once_is_told_of_twice(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    versions: list[str] = []
    pods: Informer[core_v1.Pod] = Informer(node.client, core_v1.Pod, "default")
    pods.subscribe(lambda change: versions.append(change.new.metadata.resource_version or ""))
    task = asyncio.create_task(pods.run())
    await pods.wait_synced()
    try:
        await create(node, "quick")
        await node.ready("quick")
        await node.event("quick", "Started")
    finally:
        task.cancel()
    assert len(set(versions)) == 3, "created, taken on by the node, and ready"


@pytest.mark.parametrize("clock", [FastClock(1.0)])
async def test_a_pod_that_takes_its_time_is_told_of_meanwhile(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.failures.delay("RunPodSandbox", 3.0)
    await create(node, "slow")
    pod = await node.wait("slow", lambda p: bool(p.status.container_statuses))
    state = pod.status.container_statuses[0].state
    assert state and state.waiting and state.waiting.reason == "ContainerCreating" and pod.status.start_time
    await node.ready("slow")


async def test_a_deadline_counts_from_the_start(node: NodeUnderTest) -> None:
    await create(node, "short", container(), activeDeadlineSeconds=5)
    pod = await node.wait("short", lambda p: p.status.phase == "Failed")
    assert pod.status.reason == "DeadlineExceeded"
