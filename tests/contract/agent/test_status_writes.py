"""Rate of a pod's status updates, and that delayed ones are not lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from agent.status.writer import STATUSES
from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.api.admissionregistration_v1 import ValidatingWebhookConfiguration
from kube.api.coordination_v1 import Lease
from kube.client import STRATEGIC
from kube.connections import REQUESTS
from kube.informer import Informer
from tests.support.control import ApiUnderTest
from tests.support.fake_node import container, create
from tests.support.node import FastClock, NodeUnderTest, eventually


class ReportedStatuses:
    """Every version of a pod that a watch showed."""

    def __init__(self) -> None:
        self.versions: list[core_v1.Pod] = []

    async def up_to(self, pod: core_v1.Pod) -> None:
        """Wait until the watch has come to a version that another look has shown."""

        async def seen() -> bool:
            return pod.metadata.resource_version in [found.metadata.resource_version for found in self.versions]

        await eventually(seen, "the watch has not come to the pod's last version")


@contextlib.asynccontextmanager
async def watching(node: NodeUnderTest) -> AsyncIterator[ReportedStatuses]:
    reported = ReportedStatuses()
    pods: Informer[core_v1.Pod] = Informer(node.client, core_v1.Pod, "default")
    pods.subscribe(lambda change: reported.versions.append(change.new))
    task = asyncio.create_task(pods.run())
    try:
        await pods.wait_synced()
        yield reported
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("clock", [FastClock(0.01)])  # so slow that no start can take long
async def test_the_status_of_a_pod_that_starts_at_once_is_written_twice(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    async with watching(node) as reported:
        await create(node, "quick")
        pod = await node.ready("quick")
        await node.event("quick", "Started")
        await reported.up_to(pod)
    assert len(reported.versions) == 3, "created, taken on by the node, and ready"


async def test_what_another_agent_leaves_of_a_status_is_overwritten_whole_and_once(
    node: NodeUnderTest, api: ApiUnderTest
) -> None:
    written: list[str] = []
    answer = api.api.pipeline.answer

    async def answered(request: Any, *arguments: Any) -> Any:
        if request.method == "PATCH" and b"kubelet/" in request.headers.get(b"user-agent", b""):
            written.append(request.path)
        return await answer(request, *arguments)

    api.api.pipeline.answer = answered  # type: ignore[method-assign,assignment]
    path = "/api/v1/namespaces/default/pods/shared/status"
    async with watching(node) as reported:
        await create(node, "shared")
        pod = await node.ready("shared")
        await reported.up_to(pod)
    ours, before = pod.status, written.count(path)
    assert before == len(reported.versions) - 1, "the server keeps what is written as it is"
    theirs = {"name": "main", "containerID": "fake://theirs", "restartCount": 7, "image": "i", "imageID": "i"}
    addresses = [{"$patch": "delete", "ip": ours.pod_ip}, {"ip": "10.9.9.9"}]
    status = {"containerStatuses": [theirs], "podIP": "10.9.9.9", "podIPs": addresses}
    await node.client.patch(core_v1.Pod, "shared", "default", {"status": status}, type=STRATEGIC, subresource="status")
    again = (await node.wait("shared", lambda pod: pod.status.pod_ip == ours.pod_ip)).status
    assert (again.container_statuses, again.pod_ips) == (ours.container_statuses, ours.pod_ips)
    assert written.count(path) == before + 1


@pytest.mark.parametrize("clock", [FastClock(0.01)])
async def test_changes_during_a_start_are_written_with_its_end(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.failures.delay("CreateContainer", 0.01)  # a second on this clock

    async def amid() -> bool:
        return any(rpc == "CreateContainer" for rpc, _ in runtime.calls)

    async with watching(node) as reported:
        await create(node, "stepwise")
        await eventually(amid, "the container is not being made")
        await node.client.patch(core_v1.Pod, "stepwise", "default", {"metadata": {"labels": {"new": "1"}}})
        await reported.up_to(await node.ready("stepwise"))
    assert len(reported.versions) == 4, "created, taken on by the node, labelled, and ready"


@pytest.mark.parametrize("clock", [FastClock(1.0)])
async def test_the_status_of_a_pod_that_starts_slowly_is_written_meanwhile(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.delay("RunPodSandbox", 3.0)
    async with watching(node) as reported:
        await create(node, "slow")
        await reported.up_to(await node.ready("slow"))
    between = [pod for pod in reported.versions if pod.status.container_statuses]
    state = between[0].status.container_statuses[0].state
    assert state and state.waiting and state.waiting.reason == "ContainerCreating" and between[0].status.start_time


async def test_a_deadline_counts_from_the_start(node: NodeUnderTest) -> None:
    await create(node, "short", container(), activeDeadlineSeconds=5)
    pod = await node.wait("short", lambda p: p.status.phase == "Failed")
    assert pod.status.reason == "DeadlineExceeded"


async def test_the_nodes_lease_is_renewed_while_statuses_wait_for_a_webhook_that_hangs(node: NodeUnderTest) -> None:
    requested: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: requested.append(writer), "127.0.0.1", 0)
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
        return len(requested) >= STATUSES

    await eventually(all_wait, "no status waits for the webhook")
    for _ in range(3):
        before = await renewed()

        async def again(before: str = before) -> bool:
            return await renewed() != before

        await eventually(again, "the lease is not renewed", 5.0)
    await node.stop()
    for writer in requested:
        writer.close()
    silent.close()
