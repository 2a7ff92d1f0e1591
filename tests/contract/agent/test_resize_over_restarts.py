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


WHOLE = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def conditions(pod: core_v1.Pod) -> dict[str, str | None]:
    return {c.type: c.reason for c in pod.status.conditions if c.type.startswith("PodResize")}


def limits(runtime: FakeRuntime, call: str) -> list[tuple[int, int]]:
    requests = calls(runtime, call)
    found = [r.linux if call == "UpdateContainerResources" else r.config.linux.resources for r in requests]
    return [(given.cpu_quota, given.memory_limit_in_bytes) for given in found]


async def resize(node: NodeUnderTest, name: str, **spec: Any) -> None:
    await node.client.patch(core_v1.Pod, name, "default", {"spec": spec}, type=STRATEGIC, subresource="resize")


async def test_resources_of_the_whole_pod_are_resized_in_place_and_outlive_the_agent(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "whole", container(), resources=WHOLE)
    pod = await node.ready("whole")
    uid = pod.metadata.uid
    assert pod.status.allocated_resources == WHOLE["requests"]
    assert pod.status.resources == core_v1.ResourceRequirements(**WHOLE)
    assert pod.status.container_statuses[0].resources == core_v1.ResourceRequirements()
    assert limits(runtime, "CreateContainer") == [(100_000, 128 << 20)]
    larger = {"requests": {"cpu": "600m", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "256Mi"}}
    await resize(node, "whole", resources=larger)
    pod = await node.wait(
        "whole", lambda p: p.status.resources == core_v1.ResourceRequirements(**larger) and not conditions(p)
    )
    assert pod.status.allocated_resources == larger["requests"]
    assert (pod.status.container_statuses[0].restart_count, limits(runtime, "UpdateContainerResources")) == (
        0,
        [(150_000, 256 << 20)],
    )
    assert await node.event("whole", "ResizeStarted") and await node.event("whole", "ResizeCompleted")
    for name in ("allocated_pods_state", "actuated_pods_state"):
        assert entries(node, name)[uid]["PodLevelResources"] == larger
    assert entries(node, "actuated_pods_state")[uid]["ContainerResources"] == {"main": {"limits": larger["limits"]}}
    await node.stop()
    await node.start()
    assert not conditions(await node.get("whole"))
    assert len(calls(runtime, "UpdateContainerResources")) == 1
    # A pod-level size that the node has no room for is held over a restart of the agent.
    status = (await node.client.get(core_v1.Node, node.config.node_name)).status
    assert "InPlacePodLevelResourcesVerticalScaling" in status.declared_features
    capacity = status.allocatable["cpu"]
    await create(node, "other", container(resources={"requests": {"cpu": "100m"}}))
    await node.ready("other")
    await resize(node, "whole", resources={"requests": {"cpu": capacity}, "limits": {"cpu": capacity}})
    await node.wait("whole", lambda p: conditions(p) == {"PodResizePending": "Deferred"})
    await node.stop()
    await node.start()
    pod = await node.wait("whole", lambda p: conditions(p) == {"PodResizePending": "Deferred"})
    assert pod.status.allocated_resources == larger["requests"]
    assert entries(node, "allocated_pods_state")[uid]["PodLevelResources"] == larger


async def test_a_container_that_inherits_a_limit_restarts_for_it_where_it_asks_for_that(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    await create(node, "inherits", container(resizePolicy=policy), resources=WHOLE)
    await node.ready("inherits")
    await resize(node, "inherits", resources={"limits": {"memory": "256Mi"}})
    pod = await node.wait("inherits", lambda p: p.status.container_statuses[0].restart_count == 1)
    assert limits(runtime, "CreateContainer")[-1] == (100_000, 256 << 20)
    await node.wait("inherits", lambda p: not conditions(p))
    assert pod.status.allocated_resources == WHOLE["requests"]
    assert not calls(runtime, "UpdateContainerResources")


async def test_a_pod_that_is_created_with_resources_of_its_own_is_not_resized(node: NodeUnderTest) -> None:
    await create(node, "fresh", container(), resources=WHOLE)
    await node.ready("fresh")
    await create(node, "after", container())
    await node.ready("after")
    assert not [reason for reason, _ in await node.events("fresh") if reason.startswith("Resize")]


async def test_a_pod_gets_its_first_resources_of_its_own(node: NodeUnderTest) -> None:
    small = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m"}}
    await create(node, "first", container(resources=small))
    pod = await node.ready("first")
    assert pod.status.allocated_resources == small["requests"]
    await resize(node, "first", resources=WHOLE)
    pod = await node.wait("first", lambda p: p.status.allocated_resources == WHOLE["requests"] and not conditions(p))
    assert pod.status.resources == core_v1.ResourceRequirements(**WHOLE)
