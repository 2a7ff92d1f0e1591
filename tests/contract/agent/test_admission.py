"""Pods that do not fit on a node: rejection, or preemption for a critical one."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from pathlib import Path

from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1, scheduling_v1
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest, eventually

MOST = f"{max(1, (os.cpu_count() or 1)) * 1000 - 100}m"
"""Nearly all processors of the node."""
CRITICAL = "system-node-critical"


def wants(cpu: str) -> dict[str, object]:
    return container(resources={"requests": {"cpu": cpu}})


async def priority_class(node: NodeUnderTest) -> None:
    found = [c.metadata.name for c in (await node.client.list(scheduling_v1.PriorityClass)).items]
    if CRITICAL not in found:
        made = scheduling_v1.PriorityClass(metadata=meta_v1.ObjectMeta(name=CRITICAL), value=2_000_001_000)
        await node.client.create(made)


async def test_others_make_way_for_a_critical_pod_which_starts_when_they_are_gone(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "ordinary", wants(MOST))
    await node.ready("ordinary")
    await priority_class(node)
    await create(node, "critical", wants("500m"), priorityClassName=CRITICAL)
    await node.ready("critical")
    loser = await node.wait("ordinary", lambda p: p.status.phase == "Failed")
    assert (loser.status.reason, loser.status.message) == ("Preempting", "Preempted in order to admit critical pod")
    condition = next(c for c in loser.status.conditions if c.type == "DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "TerminationByKubelet")
    assert condition.message == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert await node.event("ordinary", "Preempting") == "Preempted in order to admit critical pod"
    order = [rpc for rpc, _ in runtime.calls if rpc in ("RunPodSandbox", "StopPodSandbox")]
    assert order == ["RunPodSandbox", "StopPodSandbox", "RunPodSandbox"]


async def test_labels_that_came_a_moment_ago_count(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await node.client.patch(core_v1.Node, node.config.node_name, "", {"metadata": {"labels": {"disk": "ssd"}}})
    await create(node, "fits", nodeSelector={"disk": "ssd"})
    await node.ready("fits")
    await create(node, "misplaced", nodeSelector={"disk": "hdd"})
    pod = await node.wait("misplaced", lambda p: p.status.phase == "Failed")
    assert pod.status.reason == "NodeAffinity"
    reported = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    assert (await node.event("misplaced", "NodeAffinity"), pod.status.message) == (
        reported,
        f"Pod was rejected: {reported}",
    )
    assert len(calls(runtime, "RunPodSandbox")) == 1


async def test_a_taint_that_went_a_moment_ago_does_not_count(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    """The agent follows no changes of its Node object: it reads the object again before it rejects a pod for it."""
    name = node.config.node_name
    taints = [{"key": "away", "effect": "NoExecute"}]
    await node.client.patch(core_v1.Node, name, "", {"spec": {"taints": taints}})
    await create(node, "misplaced", nodeSelector={"disk": "hdd"})
    await node.wait("misplaced", lambda p: p.status.phase == "Failed")  # so the agent has seen the taint
    await create(node, "rejected")
    pod = await node.wait("rejected", lambda p: p.status.phase == "Failed")
    assert pod.status.reason == "TaintToleration"
    await node.client.patch(core_v1.Node, name, "", {"spec": {"taints": None}})
    await create(node, "fits")
    await node.ready("fits")
    assert len(calls(runtime, "RunPodSandbox")) == 1


async def test_a_static_pod_that_is_not_for_this_node_fails_and_harms_no_other(
    tmp_path: Path, node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await node.stop()
    manifests = tmp_path / "manifests"
    await asyncio.to_thread(manifests.mkdir)
    node.config = dataclasses.replace(node.config, static_pod_path=manifests)
    await node.start()
    spec = {"containers": [container()], "nodeSelector": {"disk": "hdd"}}
    for name, more in (("wrong", spec), ("right", {**spec, "nodeSelector": {}})):
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": more}
        await asyncio.to_thread((manifests / f"{name}.json").write_text, json.dumps(manifest))
    suffix = node.config.node_name

    async def there() -> bool:
        found = {p.metadata.name: p.status for p in (await node.client.list(core_v1.Pod, "default")).items}
        wrong, right = found.get(f"wrong-{suffix}"), found.get(f"right-{suffix}")
        return wrong is not None and wrong.reason == "NodeAffinity" and right is not None and right.phase == "Running"

    await eventually(there, "one static pod fails and the other runs")


async def test_a_critical_pod_does_not_wait_longer_than_upstream_for_a_preempted_one_that_does_not_end(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "ordinary", wants(MOST), terminationGracePeriodSeconds=20)
    await node.ready("ordinary")
    await priority_class(node)
    runtime.failures.delay("StopContainer", 500)
    began = node.clock.monotonic()
    await create(node, "critical", wants("500m"), priorityClassName=CRITICAL)
    await node.ready("critical")
    assert node.clock.monotonic() - began >= 30, "one and a half times the grace period"
    expected = "Container runtime did not kill the pod within specified grace period."
    assert await node.event("ordinary", "ExceededGracePeriod") == expected
    assert (await node.get("ordinary")).status.phase == "Running"
