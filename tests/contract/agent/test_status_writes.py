"""Rate of a pod's status updates, and that delayed ones are not lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from agent.status.writer import STATUSES
from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.api.admissionregistration_v1 import ValidatingWebhookConfiguration
from kube.api.coordination_v1 import Lease
from kube.connections import REQUESTS
from kube.informer import Informer
from tests.support.fake_node import container, create
from tests.support.node import FastClock, NodeUnderTest, eventually


class Told:
    """Every version of a pod that a watch showed."""

    def __init__(self) -> None:
        self.versions: list[core_v1.Pod] = []

    async def up_to(self, pod: core_v1.Pod) -> None:
        """Wait until the watch has come to a version that another look has shown."""

        async def seen() -> bool:
            return pod.metadata.resource_version in [found.metadata.resource_version for found in self.versions]

        await eventually(seen, "the watch has not come to the pod's last version")


@contextlib.asynccontextmanager
async def watching(node: NodeUnderTest) -> AsyncIterator[Told]:
    told = Told()
    pods: Informer[core_v1.Pod] = Informer(node.client, core_v1.Pod, "default")
    pods.subscribe(lambda change: told.versions.append(change.new))
    task = asyncio.create_task(pods.run())
    try:
        await pods.wait_synced()
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("clock", [FastClock(0.01)])  # so slow that no start can take long
async def test_a_pod_that_starts_at_once_is_told_of_twice(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async with watching(node) as told:
        await create(node, "quick")
        pod = await node.ready("quick")
        await node.event("quick", "Started")
        await told.up_to(pod)
    assert len(told.versions) == 3, "created, taken on by the node, and ready"


@pytest.mark.parametrize("clock", [FastClock(0.01)])
async def test_news_amid_a_start_are_told_of_with_its_end(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.failures.delay("CreateContainer", 0.01)  # a second on this clock

    async def amid() -> bool:
        return any(rpc == "CreateContainer" for rpc, _ in runtime.calls)

    async with watching(node) as told:
        await create(node, "stepwise")
        await eventually(amid, "the container is not being made")
        await node.client.patch(core_v1.Pod, "stepwise", "default", {"metadata": {"labels": {"new": "1"}}})
        await told.up_to(await node.ready("stepwise"))
    assert len(told.versions) == 4, "created, taken on by the node, labelled, and ready"


@pytest.mark.parametrize("clock", [FastClock(1.0)])
async def test_a_pod_that_takes_its_time_is_told_of_meanwhile(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.failures.delay("RunPodSandbox", 3.0)
    async with watching(node) as told:
        await create(node, "slow")
        await told.up_to(await node.ready("slow"))
    between = [pod for pod in told.versions if pod.status.container_statuses]
    state = between[0].status.container_statuses[0].state
    assert state and state.waiting and state.waiting.reason == "ContainerCreating" and between[0].status.start_time


async def test_a_deadline_counts_from_the_start(node: NodeUnderTest) -> None:
    await create(node, "short", container(), activeDeadlineSeconds=5)
    pod = await node.wait("short", lambda p: p.status.phase == "Failed")
    assert pod.status.reason == "DeadlineExceeded"


async def test_the_nodes_lease_is_renewed_while_statuses_wait_for_a_webhook_that_hangs(node: NodeUnderTest) -> None:
    asked: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
    hook = {
        "metadata": {"name": "hangs"},
        "webhooks": [
            {
                "name": "hangs.example.com",
                "clientConfig": {"url": f"https://127.0.0.1:{silent.sockets[0].getsockname()[1]}/"},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/status"], "operations": ["UPDATE"]}
                ],
                "sideEffects": "None",
                "timeoutSeconds": 30,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    await node.client.create(msgspec.convert(hook, ValidatingWebhookConfiguration))
    for number in range(2 * REQUESTS):
        await create(node, f"p{number}", container())

    async def renewed() -> str:
        return (await node.client.get(Lease, "node-1", "kube-node-lease")).spec.renew_time or ""

    async def all_wait() -> bool:
        return len(asked) >= STATUSES

    await eventually(all_wait, "no status waits for the webhook")
    for _ in range(3):
        before = await renewed()

        async def again(before: str = before) -> bool:
            return await renewed() != before

        await eventually(again, "the lease is not renewed", 5.0)
    await node.stop()
    for writer in asked:
        writer.close()
    silent.close()
