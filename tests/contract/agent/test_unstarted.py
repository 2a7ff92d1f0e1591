"""A container that a killed agent made and did not start is started by the next one, once, whatever the restart policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cri.channel import Channel
from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.client import STRATEGIC
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest


@pytest.mark.parametrize("gone", [False, True], ids=["still there", "gone"])
async def test_a_container_that_was_never_started_is_no_failure(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    unary, cut, killed = Channel.unary, asyncio.Event(), asyncio.Event()

    async def cutting(channel: Channel, path: str, *arguments: Any) -> Any:
        if path.endswith("/StartContainer"):
            cut.set()
            await killed.wait()
            raise asyncio.CancelledError
        return await unary(channel, path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Channel, "unary", cutting)
        await create(node, "once", container("exit 0"), restartPolicy="Never")
        try:
            async with asyncio.timeout(30):
                await cut.wait()
            # Where the runtime is slow, the agent has reported the container before.
            (made,) = runtime.containers.containers
            reported = {"status": {"containerStatuses": [{"name": "main", "containerID": f"fake://{made}"}]}}
            await node.client.patch(core_v1.Pod, "once", "default", reported, type=STRATEGIC, subresource="status")
        finally:
            killed.set()
        await node.stop()
    if gone:
        runtime.containers.containers.clear()
    await node.start()
    pod = await node.wait("once", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    assert pod.status.phase == "Succeeded", pod.status
    assert sum(c.status.started_at > 0 for c in runtime.containers.containers.values()) == 1


async def test_a_pod_that_may_not_run_again_has_failed_when_its_container_is_lost(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "once", container("sleep 1000"), restartPolicy="Never")
    await node.wait("once", lambda pod: pod.status.phase == "Running")
    await node.stop()
    runtime.containers.containers.clear()
    await node.start()
    pod = await node.wait("once", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    state = pod.status.container_statuses[0].state
    assert pod.status.phase == "Failed" and state is not None, pod.status
    assert state.terminated is None or state.terminated.reason == "ContainerStatusUnknown"
    await node.wait("once", lambda p: (s := p.status.container_statuses[0].state) is not None and bool(s.terminated))
    assert not runtime.containers.containers, "nothing of it was started again"
