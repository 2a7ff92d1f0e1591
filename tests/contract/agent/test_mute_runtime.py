"""A runtime that takes calls and answers none: the node says so, everything else goes on, and it is used again by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cri.fake import FakeRuntime
from kube.api import coordination_v1, core_v1
from kube.clock import parse_time
from tests.support.agent_process import AgentProcess
from tests.support.control import ApiUnderTest
from tests.support.fake_node import SPEED, calls, create
from tests.support.mute import MutableRuntime, mutable
from tests.support.node import DEADLINE, FastClock, NodeUnderTest, agent_node, eventually


@pytest.fixture
async def passage(tmp_path: Path, runtime: FakeRuntime) -> AsyncIterator[MutableRuntime]:
    async with mutable(tmp_path / "passage.sock", runtime.endpoint) as made:
        yield made


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, passage: MutableRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(
        tmp_path, runtime, api, clock=clock, runtime_endpoint=passage.endpoint, status_update_period=0.1
    ) as node:
        yield node


async def ready(node: NodeUnderTest) -> core_v1.NodeCondition:
    found = await node.client.get(core_v1.Node, node.config.node_name)
    return next(c for c in found.status.conditions if c.type == "Ready")


async def lease(node: NodeUnderTest) -> str:
    found = await node.client.get(coordination_v1.Lease, node.config.node_name, "kube-node-lease")
    return found.spec.renew_time or ""


async def test_a_node_with_an_unresponsive_runtime_is_not_ready_until_it_responds(
    node: NodeUnderTest, passage: MutableRuntime
) -> None:
    await create(node, "before")
    before = (await node.ready("before")).status.container_statuses[0].container_id
    assert node.config.runtime_request_timeout > DEADLINE, "no call gives up while this test waits"
    passage.fall_silent()

    async def unready() -> bool:
        return (await ready(node)).status == "False"

    await eventually(unready, "the node is not ready")
    reported = await ready(node)
    assert reported.reason == "KubeletNotReady" and "container runtime is down" in (reported.message or "")
    renewed = await lease(node)

    async def renewed_again() -> bool:
        return parse_time(await lease(node)) > parse_time(renewed)

    await eventually(renewed_again, "the lease is renewed")
    await create(node, "meanwhile")
    passage.speak()

    async def is_ready() -> bool:
        return (await ready(node)).status == "True"

    await eventually(is_ready, "the node is ready again")
    await node.ready("meanwhile")
    after = (await node.ready("before")).status.container_statuses[0]
    assert (after.container_id, after.restart_count) == (before, 0)


async def test_a_node_whose_runtime_fails_to_list_containers_is_not_ready(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.delay("ListPodSandbox", 1000 * SPEED)

    async def unready() -> bool:
        return (await ready(node)).status == "False"

    await eventually(unready, "the node is not ready")
    reported = (await ready(node)).message or ""
    assert reported.startswith("PLEG is not healthy: pleg was last seen active 3m") and reported.endswith(
        "threshold is 3m0s"
    )


async def test_a_stopping_agent_does_not_wait_for_an_unresponsive_runtime(
    tmp_path: Path, runtime: FakeRuntime, passage: MutableRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    """A call that makes a sandbox goes on when its pod is to end, but not for ever when the agent is."""
    async with agent_node(tmp_path, runtime, api, clock=clock, start=False, runtime_endpoint=passage.endpoint) as node:
        agent = AgentProcess(tmp_path, node.config, clock)
        await agent.start()
        try:
            await stops_and_goes_on(node, agent, runtime, passage)
        finally:
            await agent.kill()
        assert "Traceback" not in agent.log.read_text()


async def stops_and_goes_on(
    node: NodeUnderTest, agent: AgentProcess, runtime: FakeRuntime, passage: MutableRuntime
) -> None:
    for name in ("before", "ending"):
        await create(node, name)
    before = (await node.ready("before")).status.container_statuses[0].container_id
    await node.ready("ending")
    made = len(calls(runtime, "RunPodSandbox"))
    for rpc in ("RunPodSandbox", "StopContainer"):
        runtime.failures.delay(rpc, 1000 * SPEED)
    await create(node, "meanwhile")
    await node.delete("ending")
    await eventually(lambda: requested(runtime, "RunPodSandbox", made + 1), "the sandbox is asked for")
    await eventually(lambda: requested(runtime, "StopContainer", 1), "the container's end is asked for")
    passage.fall_silent()
    assert node.config.runtime_request_timeout > DEADLINE, "no call gives up while this test waits"
    assert await agent.terminate(DEADLINE) == 0, "the agent waits for its runtime"
    for rpc in ("RunPodSandbox", "StopContainer"):
        runtime.failures.delay(rpc, 0)
    passage.speak()
    await agent.start()
    await node.ready("meanwhile")
    await node.gone("ending")
    after = (await node.ready("before")).status.container_statuses[0]
    assert (after.container_id, after.restart_count) == (before, 0)


async def requested(runtime: FakeRuntime, rpc: str, times: int) -> bool:
    return len(calls(runtime, rpc)) >= times
