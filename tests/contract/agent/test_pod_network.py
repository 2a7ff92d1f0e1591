"""A runtime without a pod network: the node is not Ready, pods of the host network run, the others wait with an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.client import STRATEGIC
from tests.support.control import ApiUnderTest
from tests.support.fake_node import calls, create
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually

PROBLEM = "container runtime network not ready: NetworkReady=false"


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    runtime.containers.conditions["NetworkReady"] = False
    async with agent_node(tmp_path, runtime, api, clock=clock, status_update_period=0.2) as node:
        yield node


async def condition(node: NodeUnderTest, kind: str = "Ready") -> core_v1.NodeCondition:
    found = await node.client.get(core_v1.Node, node.config.node_name)
    return next(c for c in found.status.conditions if c.type == kind)


async def test_pods_wait_for_a_network_unless_they_use_the_hosts(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    ready = await condition(node)
    assert (ready.status, ready.reason) == ("False", "KubeletNotReady")
    assert (ready.message or "").startswith(PROBLEM)

    await create(node, "plugin", hostNetwork=True)
    await create(node, "waiting")
    await node.ready("plugin")
    assert (await node.event("waiting", "NetworkNotReady")).startswith(f"network is not ready: {PROBLEM}")
    assert [request.config.metadata.name for request in calls(runtime, "RunPodSandbox")] == ["plugin"]

    runtime.containers.conditions["NetworkReady"] = True
    await node.ready("waiting")

    async def is_ready() -> bool:
        return (await condition(node)).status == "True"

    await eventually(is_ready, "the node is Ready without a restart of the agent")
    assert [reason for reason, _ in await node.events("waiting")].count("NetworkNotReady") == 1


async def test_pods_wait_for_the_network_that_the_node_requires(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    def load(name: str) -> None:
        runtime.containers.info["cniconfig"] = json.dumps({"Networks": [{"Config": {"Name": name}}]})

    load("podman")
    async with agent_node(
        tmp_path, runtime, api, clock=clock, status_update_period=0.2, required_network="site"
    ) as node:
        ready = await condition(node)
        assert (ready.status, ready.reason) == ("False", "KubeletNotReady")
        assert (ready.message or "").startswith(PROBLEM)
        assert (ready.message or "").endswith(
            "requires the pod network site, and the container runtime has loaded podman"
        )
        await create(node, "plugin", hostNetwork=True)
        await create(node, "waiting")
        await node.ready("plugin")
        assert (await node.event("waiting", "NetworkNotReady")).startswith(f"network is not ready: {PROBLEM}")
        assert [request.config.metadata.name for request in calls(runtime, "RunPodSandbox")] == ["plugin"]
        load("site")
        await node.ready("waiting")

        async def is_ready() -> bool:
            return (await condition(node)).status == "True"

        await eventually(is_ready, "the node is Ready without a restart of the agent")


async def test_pods_that_run_keep_running_without_a_network(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.containers.conditions["NetworkReady"] = True
    await create(node, "before")
    before = (await node.ready("before")).status.container_statuses[0]
    runtime.containers.conditions["NetworkReady"] = False

    async def unready() -> bool:
        return (await condition(node)).status == "False"

    await eventually(unready, "the node is not Ready")
    after = (await node.ready("before")).status.container_statuses[0]
    assert (after.container_id, after.restart_count) == (before.container_id, 0)


async def test_a_condition_that_a_plugin_sets_is_kept(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    """Plugins report NetworkUnavailable by a patch of nodes/status, as flannel and Calico do."""
    mine = {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp", "message": "Flannel is running"}
    body = {"status": {"conditions": [mine]}}
    await node.client.patch(core_v1.Node, node.config.node_name, "", body, type=STRATEGIC, subresource="status")
    runtime.containers.conditions["NetworkReady"] = True

    async def is_ready() -> bool:
        return (await condition(node)).status == "True"

    await eventually(is_ready, "the node is Ready")
    assert (await condition(node, "NetworkUnavailable")).reason == "FlannelIsUp"
