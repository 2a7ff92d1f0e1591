"""The runtime does what it was asked to and its answer is lost: nothing is done twice, and nothing is left behind."""

from __future__ import annotations

import pytest

from cri.fake import FakeRuntime
from tests.support.fake_node import calls, create
from tests.support.node import NodeUnderTest, eventually


@pytest.mark.parametrize("rpc", ["ContainerStatus", "PodSandboxStatus"])
async def test_a_pod_whose_state_could_not_be_read_is_not_started_twice(
    node: NodeUnderTest, runtime: FakeRuntime, rpc: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.failures.fail(rpc, "the socket is gone", times=2)
    await create(node, "once")
    pod = await node.ready("once")
    assert pod.status.container_statuses[0].restart_count == 0
    assert len(runtime.containers.containers) == 1
    assert len(calls(runtime, "StartContainer")) == 1
    alive = [s for s in runtime.containers.sandboxes.values() if s.status.state == 0]
    assert len(alive) == 1
    assert "Traceback" not in caplog.text
    await node.delete("once")
    await node.gone("once")

    async def nothing() -> bool:
        return not runtime.containers.sandboxes

    await eventually(nothing, "a sandbox was left behind")
