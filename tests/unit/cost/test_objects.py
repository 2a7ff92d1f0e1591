"""The cost of following one large object is in proportion to its length: 1.5 MB of ports are as valid as ten bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.pods import admission
from agent.pods.pod_requests import PodRequests
from control.controllers.endpoints import mirrored_slices, slice_plan
from control.controllers.endpoints.target_ports import TargetPorts
from control.scheduler.cluster import Cluster
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.node_ports import NodePorts
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1
from tests.support.cost import Case, judge_steps, judge_time

PORT_BYTES = 48
"""Bytes of a port in JSON."""
LARGEST = 64 * 1024


def pod(size: int, host: int = 0) -> core_v1.Pod:
    """Return a pod with so many bytes of named ports; `host` is the first port that it takes of its node."""
    ports = [
        core_v1.ContainerPort(name=f"p{n}", container_port=n + 1, host_port=host + n if host else None)
        for n in range(size // PORT_BYTES)
    ]
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=f"p{host}", namespace="default", uid=f"uid-{host}"),
        spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", ports=ports)]),
        status=core_v1.PodStatus(phase="Running", pod_ip="10.0.0.1"),
    )


def service_and_pod(size: int) -> tuple[core_v1.Service, core_v1.Pod]:
    numbers = range(size // PORT_BYTES)
    ports = [core_v1.ServicePort(name=f"p{n}", port=n + 1, target_port=f"p{n}") for n in reversed(numbers)]
    metadata = meta_v1.ObjectMeta(name="s", namespace="default")
    return core_v1.Service(metadata=metadata, spec=core_v1.ServiceSpec(ports=ports)), pod(size)


def node_and_pod(size: int) -> tuple[PodInfo, NodeInfo]:
    node = NodeInfo(core_v1.Node(metadata=meta_v1.ObjectMeta(name="n")))
    node.add(PodInfo(pod(size, 1)))
    return PodInfo(pod(size, 30000)), node


def spread_pod(size: int) -> tuple[PodInfo, Cluster]:
    """Return a pod with so many bytes of spread constraints, and a cluster of two nodes."""
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.set_node(core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, labels={"k0": name})))
    made = pod(PORT_BYTES)
    made.spec.topology_spread_constraints = [
        core_v1.TopologySpreadConstraint(
            max_skew=1, topology_key=f"k{n}", when_unsatisfiable=what, node_taints_policy="Honor"
        )
        for n in range(size // 200)
        for what in ("DoNotSchedule", "ScheduleAnyway")
    ]
    return PodInfo(made), cluster


def slices_of_pods(size: int) -> tuple[Any, ...]:
    """Pods that each give another number to the port's name, so that each has a slice, and those slices."""
    service = service_and_pod(PORT_BYTES)[0]
    pods = []
    for number in range(size // 256):
        made = pod(PORT_BYTES)
        made.metadata.uid, made.status.pod_ip = f"uid-{number}", f"10.0.{number // 250}.{number % 250}"
        made.spec.containers[0].ports[0].container_port = number + 1
        pods.append(made)
    return service, pods, {}, slice_plan.plan(service, pods, {}, []).create


def mirrored(size: int) -> tuple[list[Any], list[Any]]:
    """Return the slices of Endpoints whose subsets each have a port of their own, and those that exist, the other way round."""
    subsets = [
        core_v1.EndpointSubset(
            addresses=[core_v1.EndpointAddress(ip="192.0.2.1")], ports=[core_v1.EndpointPort(port=n + 1)]
        )
        for n in range(size // 64)
    ]
    metadata = meta_v1.ObjectMeta(name="e", namespace="default", uid="uid-e")
    slices, *_ = asyncio.run(mirrored_slices.slices_of(core_v1.Endpoints(metadata=metadata, subsets=subsets)))
    return slices, slices[::-1]


CASES = [
    Case("ports of a Service", service_and_pod, lambda given: TargetPorts(given[0]).of(given[1]), LARGEST),
    Case("mirrored slices", mirrored, lambda given: asyncio.run(mirrored_slices.plan(*given)), LARGEST),
    Case("slices by ports", slices_of_pods, lambda given: slice_plan.plan(*given), LARGEST),
    Case(
        "spread constraints", spread_pod, lambda given: PodTopologySpread(lambda pod: None).pre_filter(*given), LARGEST
    ),
    Case("host ports for the scheduler", node_and_pod, lambda given: NodePorts().filter(*given), LARGEST),
    Case(
        "host ports for the agent",
        lambda size: (pod(size, 30000), [PodRequests.of(pod(size, 1))]),
        lambda given: admission._ports(*given),
        LARGEST,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_cost_grows_no_faster_than_the_object(case: Case) -> None:
    judge_steps(case)
    judge_time(case)
