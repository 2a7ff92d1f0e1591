"""A container whose status is larger than a message: the node stays Ready, its pod ends, and the agent starts again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cri.fake import FakeRuntime
from cri.fake.failures import RPCError
from kube.api import core_v1
from tests.support.fake_node import calls, create
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import FastClock, NodeUnderTest, eventually

TOO_LARGE = RPCError(
    grpc.StatusCode.RESOURCE_EXHAUSTED, "trying to send message larger than max (17500010 vs. 16777216)"
)


class HostileRuntime(FakeRuntime):
    """Refuses the statuses of one pod's containers, as containerd does for users in millions of groups."""

    def _unary(self, rpc: str, implementation: Any) -> Any:
        async def answer(request: Any) -> Any:
            found = await implementation(request)
            if rpc == "ContainerStatus" and found.status.labels["io.kubernetes.pod.name"] == "attacker":
                raise TOO_LARGE
            return found

        return super()._unary(rpc, answer)


@pytest.fixture
async def runtime(tmp_path: Path, clock: FastClock) -> AsyncIterator[FakeRuntime]:
    async with HostileRuntime(tmp_path / "runtime.sock", clock.sleep, clock.nanoseconds) as runtime:
        runtime.images.add(BUSYBOX_IMAGE)
        yield runtime


async def node_is_ready(node: NodeUnderTest) -> bool:
    found = await node.client.get(core_v1.Node, node.config.node_name)
    return next(each.status for each in found.status.conditions if each.type == "Ready") == "True"


async def test_a_status_that_cannot_be_read_holds_up_nothing(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async def relisted() -> bool:
        return len(calls(runtime, "ListPodSandbox")) >= before + 5

    await create(node, "victim")
    await node.ready("victim")
    await create(node, "attacker")
    await node.ready("attacker")
    for restarts in range(2):
        before = len(calls(runtime, "ListPodSandbox"))
        await eventually(relisted, "the runtime is not listed any more")
        assert await node_is_ready(node)
        if not restarts:
            await node.stop()
            await node.start()
    await create(node, "later")
    await node.ready("later")
    await node.delete("attacker", 0)
    await node.gone("attacker")

    async def removed() -> bool:
        names = {c.status.labels["io.kubernetes.pod.name"] for c in runtime.containers.containers.values()}
        return names == {"victim", "later"}

    await eventually(removed, "the container is still there")
