"""Queueing hints: the changes that requeue pods."""

from __future__ import annotations

from typing import Any

import pytest

from control.scheduler import hints
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from kube.api import core_v1, meta_v1, resource_v1
from kube.informer import Change
from tests.support.clock import FakeClock

from .clusters import ZONE, node, pod

BIG, SMALL = NodeInfo(node("big", cpu="8")), NodeInfo(node("small", cpu="1"))
TAINT = core_v1.Taint(key="k", effect="NoSchedule")


@pytest.mark.parametrize(
    ("plugin", "incoming", "place", "helps"),
    [
        ("NodeResourcesFit", pod("p", "2"), BIG, True),
        ("NodeResourcesFit", pod("p", "2"), SMALL, False),
        ("NodeAffinity", pod("p", node_selector={ZONE: "a"}), NodeInfo(node("n", zone="a")), True),
        ("NodeAffinity", pod("p", node_selector={ZONE: "a"}), NodeInfo(node("n", zone="b")), False),
        ("TaintToleration", pod("p"), NodeInfo(node("n", taints=[TAINT])), False),
        ("TaintToleration", pod("p"), BIG, True),
        ("NodeUnschedulable", pod("p"), NodeInfo(node("n", unschedulable=True)), False),
        ("InterPodAffinity", pod("p"), SMALL, True),
    ],
)
def test_a_node_helps_pods_that_could_go_there(
    plugin: str, incoming: core_v1.Pod, place: NodeInfo, helps: bool
) -> None:
    assert hints.of_node(place)(plugin, PodInfo(incoming)) is helps


@pytest.mark.parametrize(
    ("plugin", "gone", "incoming", "helps"),
    [
        ("NodeResourcesFit", pod("g", "1"), pod("p", "2"), True),
        ("NodeResourcesFit", pod("g"), pod("p", "2"), False),
        ("NodeResourcesFit", pod("g", memory="1Gi"), pod("p", "2"), False),
        ("NodePorts", pod("g", ports=(80,)), pod("p", ports=(80,)), True),
        ("NodePorts", pod("g", ports=(81,)), pod("p", ports=(80,)), False),
        ("PodTopologySpread", pod("g"), pod("p"), True),
    ],
)
def test_a_pod_that_goes_helps_those_who_want_what_it_had(
    plugin: str, gone: core_v1.Pod, incoming: core_v1.Pod, helps: bool
) -> None:
    assert hints.of_departure(PodInfo(gone), BIG)(plugin, PodInfo(incoming)) is helps


def test_a_full_node_is_helped_by_anybody_who_goes() -> None:
    full = NodeInfo(node("n", pods="1"))
    assert hints.of_departure(PodInfo(pod("g")), full)("NodeResourcesFit", PodInfo(pod("p", "1")))


async def test_the_queue_leaves_pods_that_a_change_cannot_help() -> None:
    queue = SchedulingQueue(FakeClock())
    for name, cpu in (("large", "4"), ("little", "500m")):
        queue.add(PodInfo(pod(name, cpu)))
        queue.failed(await queue.get(), frozenset({"NodeResourcesFit"}))
    queue.event(frozenset({"NodeResourcesFit"}), hints.of_node(SMALL))
    assert queue.lengths() == (0, 1, 1)
    assert (await queue.get()).key == "default/little"


def holder(name: str, allocated: bool, **metadata: Any) -> resource_v1.ResourceClaim:
    status = resource_v1.ResourceClaimStatus(allocation=resource_v1.AllocationResult() if allocated else None)
    return resource_v1.ResourceClaim(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", **metadata), status=status
    )


OWN = core_v1.PodResourceClaim(name="r", resource_claim_name="own")


@pytest.mark.parametrize(
    ("old", "new", "type", "helps"),
    [
        (holder("other", True), holder("other", False), "MODIFIED", True),
        (holder("other", True), holder("other", True), "DELETED", True),
        (None, holder("other", False), "ADDED", False),
        (None, holder("own", False), "ADDED", True),
        (holder("own", False), holder("own", True), "MODIFIED", True),
        (holder("own", False), holder("own", False, finalizers=["f"]), "MODIFIED", False),
    ],
)
def test_a_claim_helps_whom_it_frees_devices_for_or_who_uses_it(old: Any, new: Any, type: str, helps: bool) -> None:
    waiting = PodInfo(pod("p", resource_claims=[OWN]))
    assert hints.of_claim(Change(type, old, new))("DynamicResources", waiting) is helps


def test_node_events_requeue_pods_with_extended_resources_because_devices_may_back_them() -> None:
    incoming = PodInfo(pod("p", requests={"example.com/gpu": "1"}))
    assert hints.of_node(SMALL)("NodeResourcesFit", incoming)
