"""Allocated resources of a pod after restarts of the agent and of the machine."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.client import STRATEGIC
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest


def cpu_shares(runtime: FakeRuntime) -> list[int]:
    return [request.config.linux.resources.cpu_shares for request in calls(runtime, "CreateContainer")]


def entries(node: NodeUnderTest, name: str) -> Any:
    return json.loads(json.loads((node.config.root_dir / name).read_text())["data"])["entries"]


async def test_a_resize_that_is_held_does_not_come_true_when_the_machine_starts_anew(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    small = {"requests": {"cpu": "100m"}}
    await create(node, "sized", container(resources=small))
    pod = await node.ready("sized")
    capacity = (await node.client.get(core_v1.Node, node.config.node_name)).status.allocatable["cpu"]
    await create(node, "other", container(resources=small))
    await node.ready("other")
    uid = pod.metadata.uid
    assert entries(node, "actuated_pods_state")[uid]["ContainerResources"] == {"main": small}
    await node.stop()
    assert entries(node, "allocated_pods_state")[uid]["ContainerResources"] == {"main": small}
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": capacity}}}]}}
    await node.client.patch(core_v1.Pod, "sized", "default", body, type=STRATEGIC, subresource="resize")
    for sandbox_id in list(runtime.containers.sandboxes):
        request = SimpleNamespace(pod_sandbox_id=sandbox_id)
        await runtime.containers.stop_pod_sandbox(request)
        await runtime.containers.remove_pod_sandbox(request)
    await node.start()
    await node.wait(
        "sized",
        lambda p: (
            any(c.type == "PodResizePending" and c.reason == "Deferred" for c in p.status.conditions)
            and p.status.container_statuses[0].ready
        ),
    )
    assert cpu_shares(runtime) == [102] * len(cpu_shares(runtime)) and len(cpu_shares(runtime)) > 2
    assert entries(node, "allocated_pods_state")[uid]["ContainerResources"] == {"main": small}
