"""Placement of pods by the scheduler over HTTPS with hollow nodes: unschedulable pods, priorities, waiting pods."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api import core_v1, meta_v1
from tests.support.hollow import eventually
from tests.support.hollow_cluster import Cluster, deployment, hollow_cluster, running_pods


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with hollow_cluster(tmp_path) as made:
        yield made


async def test_an_unschedulable_pod_reports_the_reason_and_is_scheduled_when_it_fits(cluster: Cluster) -> None:
    await cluster.nodes.register("n1", cpu="1")
    await cluster.client.create(deployment(replicas=1, cpu="2"))
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )

    async def is_reported() -> bool:
        return any(e.message == message and e.type == "Warning" for e in await cluster.events("FailedScheduling"))

    await eventually(is_reported)

    async def noted() -> bool:
        (pod,) = await cluster.pods()
        conditions = [(c.type, c.status, c.reason, c.message) for c in pod.status.conditions]
        return ("PodScheduled", "False", "Unschedulable", message) in conditions

    await eventually(noted)
    await cluster.nodes.register("n2", cpu="4")
    await eventually(lambda: running_pods(cluster, 1))
    assert (await cluster.pods())[0].spec.node_name == "n2"


async def test_an_important_pod_takes_the_place_of_a_lesser_one(cluster: Cluster) -> None:
    zone = {"topology.kubernetes.io/zone": "z1"}
    await cluster.nodes.register("n1", cpu="1", **zone)
    await cluster.client.create(deployment(replicas=1, cpu="800m"))
    await eventually(lambda: running_pods(cluster, 1))
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
    }
    await cluster.kubectl("create", "-f", "-", input=json.dumps(important))
    spec = core_v1.PodSpec(
        priority_class_name="important",
        containers=[
            core_v1.Container(name="c", image="x", resources=core_v1.ResourceRequirements(requests={"cpu": "800m"}))
        ],
    )
    await cluster.client.create(core_v1.Pod(metadata=meta_v1.ObjectMeta(name="vip", namespace="default"), spec=spec))

    async def placed() -> bool:
        return (await cluster.client.get(core_v1.Pod, "vip", "default")).spec.node_name == "n1"

    await eventually(placed)
    await eventually(lambda: cluster.events("Preempted"))
    # Bound, it carries its node's zone, and what it was nominated for is no more.
    vip = await cluster.client.get(core_v1.Pod, "vip", "default")
    assert vip.metadata.labels == zone and vip.status.nominated_node_name is None


async def test_a_gated_pod_is_placed_when_its_gates_are_open(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    gates = [core_v1.PodSchedulingGate(name="example.com/wait")]
    spec = core_v1.PodSpec(containers=[core_v1.Container(name="c", image="x")], scheduling_gates=gates)
    await cluster.client.create(core_v1.Pod(metadata=meta_v1.ObjectMeta(name="held", namespace="default"), spec=spec))
    await cluster.client.create(
        core_v1.Pod(metadata=meta_v1.ObjectMeta(name="free", namespace="default"), spec=_plain())
    )

    async def placed(name: str) -> bool:
        return (await cluster.client.get(core_v1.Pod, name, "default")).spec.node_name == "n1"

    await eventually(lambda: placed("free"))
    held = await cluster.client.get(core_v1.Pod, "held", "default")
    condition = next(c for c in held.status.conditions if c.type == "PodScheduled")
    assert held.spec.node_name is None and (condition.status, condition.reason) == ("False", "SchedulingGated")
    await cluster.client.patch(core_v1.Pod, "held", "default", {"spec": {"schedulingGates": None}})
    await eventually(lambda: placed("held"))


def _plain() -> core_v1.PodSpec:
    return core_v1.PodSpec(containers=[core_v1.Container(name="c", image="x")])


async def test_a_pod_of_another_scheduler_is_left_to_it(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    other = _plain()
    other.scheduler_name = "mine"
    await cluster.client.create(
        core_v1.Pod(metadata=meta_v1.ObjectMeta(name="theirs", namespace="default"), spec=other)
    )
    await cluster.client.create(
        core_v1.Pod(metadata=meta_v1.ObjectMeta(name="ours", namespace="default"), spec=_plain())
    )

    async def placed() -> bool:
        return (await cluster.client.get(core_v1.Pod, "ours", "default")).spec.node_name == "n1"

    await eventually(placed)
    assert (await cluster.client.get(core_v1.Pod, "theirs", "default")).spec.node_name is None
