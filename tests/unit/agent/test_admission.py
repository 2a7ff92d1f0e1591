"""Admission of pods by a node, with upstream's reasons and messages, and preemption for a critical pod."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agent.config import AgentConfig
from agent.node.state import NodeState
from agent.pods.admission import Admission, admit
from agent.pods.pod_requests import PodRequests
from kube.api import core_v1
from tests.unit.agent.pods import pod

NODE = NodeState(
    allocatable={"cpu": "2", "memory": "1Gi", "pods": "110", "vendor.example/known": "1"},
    labels={"disk": "ssd", "kubernetes.io/os": "linux"},
)
CRITICAL = 2_000_000_000


def sized(requests: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests, "limits": limits or {}}}


def cpu(amount: str, **spec: Any) -> core_v1.Pod:
    return pod(sized({"cpu": amount}), **spec)


def refusal(given: core_v1.Pod, *others: core_v1.Pod, node: NodeState = NODE, **changes: Any) -> tuple[str, str]:
    rejected = admit(given, map(PodRequests.of, others), node, AgentConfig(node_name="n", **changes)).rejected
    if rejected is None:
        return "", ""
    assert rejected.phase == "Failed" and rejected.message.startswith("Pod was rejected: ")
    assert rejected.message == f"Pod was rejected: {rejected.event_message}"
    return rejected.reason, rejected.event_message


def reason(given: core_v1.Pod, *others: core_v1.Pod, node: NodeState = NODE, **changes: Any) -> str:
    return refusal(given, *others, node=node, **changes)[0]


def but(**changes: Any) -> NodeState:
    return dataclasses.replace(NODE, **changes)


def profile(kind: str) -> core_v1.Pod:
    return pod({"name": "main", "securityContext": {"appArmorProfile": {"type": kind}}})


def affinity(**term: Any) -> core_v1.Pod:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(affinity={"nodeAffinity": required})


SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
PORT = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
NO_EXECUTE = [core_v1.Taint(key="gone", effect="NoExecute")]
NO_SCHEDULE = [core_v1.Taint(key="busy", effect="NoSchedule")]
FORGED = {
    "annotations": {
        "kubernetes.io/config.hash": "1",
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.mirror": "1",
    }
}
"""Metadata of an API pod that pretends to be a static one."""


@pytest.mark.parametrize(
    ("given", "others", "node", "wanted"),
    [
        (pod(), (), NODE, ""),
        (cpu("2"), (), NODE, ""),
        (cpu("1"), (cpu("1"),), NODE, ""),
        (cpu("1"), (cpu("1500m"),), NODE, "OutOfcpu"),
        (pod(sized({"memory": "2Gi"})), (), NODE, "OutOfmemory"),
        (pod(sized({"hugepages-2Mi": "2Mi"})), (), NODE, "OutOfhugepages-2Mi"),
        (pod(sized({"vendor.example/known": "2"})), (), NODE, "OutOfvendor.example/known"),
        (pod(sized({"vendor.example/unknown": "2"})), (), NODE, ""),
        (pod(sized({f"vendor.example/a{n:04d}": "0" for n in range(2000)})), (), NODE, ""),
        (pod(sized({f"vendor.example/a{n:04d}": "0" for n in range(16_000)})), (), NODE, "PodResourcesTooLarge"),
        (pod(sized({f"vendor.example/a{n:04d}": "1" for n in range(16_000)})), (), NODE, "PodResourcesTooLarge"),
        (pod(PORT), (pod(PORT),), NODE, "NodePorts"),
        (pod(os={"name": "windows"}), (), NODE, "PodOSNotSupported"),
        (pod(metadata={"labels": {"kubernetes.io/os": "windows"}}), (), NODE, "PodOSSelectorNodeLabelDoesNotMatch"),
        (pod(nodeSelector={"kubernetes.io/os": "windows"}), (), NODE, "NodeAffinity"),
        (pod(nodeSelector={"disk": "ssd"}), (), NODE, ""),
        (pod(nodeSelector={"disk": "hdd"}), (), NODE, "NodeAffinity"),
        (pod(nodeSelector={"disk": "hdd"}), (), but(labels=None), ""),
        (affinity(matchExpressions=[SSD]), (), NODE, ""),
        (affinity(matchExpressions=[{**SSD, "operator": "NotIn"}]), (), NODE, "NodeAffinity"),
        (affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]), (), NODE, ""),
        (pod(), (), but(taints=NO_EXECUTE), "TaintToleration"),
        (pod(tolerations=[{"key": "gone", "operator": "Exists"}]), (), but(taints=NO_EXECUTE), ""),
        (pod(), (), but(taints=NO_SCHEDULE), ""),
        (pod(metadata=FORGED), (), but(taints=NO_EXECUTE), "TaintToleration"),
        (pod(), (), but(shutting_down=True), "NodeShutdown"),
        (pod(priority=CRITICAL), (), but(shutting_down=True), "NodeShutdown"),
        (profile("RuntimeDefault"), (), NODE, "AppArmor"),
        (profile("Unconfined"), (), NODE, ""),
        (profile("RuntimeDefault"), (), but(app_armor=True), ""),
        (pod(securityContext={"supplementalGroupsPolicy": "Merge"}), (), NODE, ""),
        (
            pod(securityContext={"supplementalGroupsPolicy": "Strict"}),
            (),
            NODE,
            "SupplementalGroupsPolicyNotSupported",
        ),
        (
            pod(securityContext={"supplementalGroupsPolicy": "Strict"}),
            (),
            but(supplemental_groups_policy=True),
            "",
        ),
        (pod(), (), but(pressures=lambda: {"DiskPressure": True}), "Evicted"),
        (pod(), (), but(pressures=lambda: {"DiskPressure": False}), ""),
        (pod(priority=CRITICAL), (), but(pressures=lambda: {"DiskPressure": True}), ""),
        (pod(), (), but(pressures=lambda: {"MemoryPressure": True}), "Evicted"),
        (pod(metadata=FORGED), (), but(pressures=lambda: {"MemoryPressure": True}), "Evicted"),
        (pod(sized({"cpu": "1"}), metadata=FORGED), (cpu("1500m"),), NODE, "OutOfcpu"),
        (cpu("1"), (), but(pressures=lambda: {"MemoryPressure": True}), ""),
        (cpu("1"), (), but(pressures=lambda: {"MemoryPressure": True, "PIDPressure": True}), "Evicted"),
        (
            pod(tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
            (),
            but(pressures=lambda: {"MemoryPressure": True}),
            "",
        ),
    ],
)
def test_a_node_admits_pods_that_fit_and_reports_the_reason_otherwise(
    given: core_v1.Pod, others: tuple[core_v1.Pod, ...], node: NodeState, wanted: str
) -> None:
    assert reason(given, *others, node=node) == wanted


def test_too_many_pods_are_out_of_pods() -> None:
    text = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
    assert refusal(pod(), pod(), max_pods=1) == ("OutOfpods", text)


def test_the_messages_are_upstreams() -> None:
    assert refusal(cpu("1"), cpu("1500m"))[1] == (
        "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
    )
    assert refusal(pod(nodeSelector={"a": "b"}))[1] == (
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    assert refusal(profile("Localhost"))[1] == "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    pressed = but(pressures=lambda: {"MemoryPressure": True})
    assert refusal(pod(), node=pressed)[1] == "The node had condition: [MemoryPressure]. "


def test_only_allowed_sysctls_are_taken() -> None:
    def with_sysctl(name: str) -> core_v1.Pod:
        return pod(securityContext={"sysctls": [{"name": name, "value": "1"}]})

    assert reason(with_sysctl("kernel.shm_rmid_forced")) == ""
    assert refusal(with_sysctl("net.core.somaxconn")) == (
        "SysctlForbidden",
        'forbidden sysctl: "net.core.somaxconn" not allowlisted',
    )
    assert reason(with_sysctl("net.core.somaxconn"), allowed_unsafe_sysctls=("net.core.*",)) == ""


# -- victims ----------------------------------------------------------------------------------------------------
def guaranteed(amount: str, name: str) -> core_v1.Pod:
    both = {"cpu": amount, "memory": "1Mi"}
    return pod(sized(both, both), metadata={"name": name, "uid": name})


def burstable(amount: str, name: str, **spec: Any) -> core_v1.Pod:
    return cpu(amount, metadata={"name": name, "uid": name}, **spec)


def best_effort(name: str) -> core_v1.Pod:
    return pod(metadata={"name": name, "uid": name})


def way(wants: str, *others: core_v1.Pod, **changes: Any) -> list[str]:
    admission = admit(
        cpu(wants, priority=CRITICAL), map(PodRequests.of, others), NODE, AgentConfig(node_name="n", **changes)
    )
    assert admission.rejected is None
    return [victim.metadata.name or "" for victim in admission.preempt]


def test_nobody_makes_way_where_there_is_room() -> None:
    assert way("1", burstable("1", "b")) == []


def test_burstable_pods_make_way_before_guaranteed_ones() -> None:
    assert way("1", guaranteed("1", "g"), burstable("1", "b")) == ["b"]
    assert way("2", guaranteed("1", "g"), burstable("1", "b")) == ["b", "g"]


def test_one_pod_that_holds_enough_goes_rather_than_two_and_the_smaller_of_those() -> None:
    assert way("1", burstable("500m", "a"), burstable("500m", "b"), burstable("1", "c")) == ["c"]
    assert way("500m", burstable("1500m", "large"), burstable("500m", "small")) == ["small"]


def test_a_pod_without_requests_makes_way_for_a_place_only() -> None:
    assert way("1", best_effort("idle"), burstable("1500m", "b")) == ["b"]
    assert way("1", best_effort("idle"), burstable("500m", "b"), max_pods=2) == ["idle"]


def test_a_critical_pod_does_not_make_way_for_one_of_its_priority() -> None:
    other = burstable("2", "other", priority=CRITICAL)
    rejected = admit(cpu("1", priority=CRITICAL), [PodRequests.of(other)], NODE, AgentConfig(node_name="n")).rejected
    assert rejected is not None and rejected.reason == "UnexpectedAdmissionError"
    assert rejected.message.endswith("no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]")


def test_a_critical_pod_is_still_refused_for_other_reasons() -> None:
    given = cpu("2", priority=CRITICAL, nodeSelector={"disk": "hdd"})
    assert reason(given, burstable("2", "b")) == "NodeAffinity"


def test_a_pod_of_this_machines_manifests_is_critical() -> None:
    def admitted(given: core_v1.Pod, *others: core_v1.Pod, node: NodeState = NODE) -> Admission:
        return admit(given, map(PodRequests.of, others), node, AgentConfig(node_name="n"), static={"own"})

    own = burstable("1", "own")
    assert admitted(own, node=but(taints=NO_EXECUTE)).rejected is None
    assert admitted(own, node=but(pressures=lambda: {"DiskPressure": True})).rejected is None
    assert [p.metadata.name for p in admitted(own, burstable("2", "b")).preempt] == ["b"]
    wanting = admitted(cpu("1", priority=CRITICAL - 1, metadata={"uid": "x"}), burstable("2", "own")).rejected
    assert wanting is not None and wanting.reason == "OutOfcpu"
    critical = admitted(cpu("1", priority=CRITICAL, metadata={"uid": "x"}), burstable("2", "own", priority=CRITICAL))
    assert critical.rejected is not None and critical.preempt == ()


def test_an_ordinary_pod_preempts_nobody() -> None:
    assert reason(cpu("1"), burstable("2", "b")) == "OutOfcpu"
