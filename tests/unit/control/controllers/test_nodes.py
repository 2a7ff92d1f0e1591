"""Node health: silence, conditions, taints, zones, tolerations; the timers in virtual time."""

from __future__ import annotations

import pytest

from control.controllers.node_ipam import RangeFull, Ranges
from control.controllers.nodes import health, zones
from control.controllers.nodes.taint_eviction import min_toleration_time
from control.controllers.pod_gc import surplus_terminated
from kube.api import core_v1, meta_v1

from .makers import NOW, ago, pod


def node(**conditions: str) -> core_v1.Node:
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name="n1", creation_timestamp=ago(100)),
        status=core_v1.NodeStatus(
            conditions=[
                core_v1.NodeCondition(type=t, status=s, last_heartbeat_time=ago(60)) for t, s in conditions.items()
            ]
        ),
    )


def test_a_silent_node_becomes_unknown_in_upstreams_words() -> None:
    found = {c.type: c for c in health.unknown_conditions(node(Ready="True", DiskPressure="False"), NOW)}
    assert found["Ready"].status == found["DiskPressure"].status == "Unknown"
    assert found["Ready"].reason == "NodeStatusUnknown"
    assert found["Ready"].message == "Kubelet stopped posting node status."
    assert found["Ready"].last_heartbeat_time == ago(60) and found["Ready"].last_transition_time == ago(0)
    assert (found["PIDPressure"].reason, found["PIDPressure"].message) == (
        "NodeStatusNeverUpdated",
        "Kubelet never posted node status.",
    )


def test_a_node_that_is_unknown_already_is_left_alone() -> None:
    silent = node(Ready="Unknown", MemoryPressure="Unknown", DiskPressure="Unknown", PIDPressure="Unknown")
    assert health.unknown_conditions(silent, NOW) is None


@pytest.mark.parametrize(
    ("conditions", "no_schedule", "no_execute"),
    [
        ({"Ready": "True"}, set(), None),
        ({"Ready": "False"}, {health.NOT_READY}, health.NOT_READY),
        ({"Ready": "Unknown"}, {health.UNREACHABLE}, health.UNREACHABLE),
        ({}, set(), None),
        ({"NetworkUnavailable": "True"}, {"node.kubernetes.io/network-unavailable"}, None),
        ({"Ready": "True", "DiskPressure": "True"}, {"node.kubernetes.io/disk-pressure"}, None),
        ({"Ready": "True", "MemoryPressure": "True"}, {"node.kubernetes.io/memory-pressure"}, None),
        ({"Ready": "True", "PIDPressure": "True"}, {"node.kubernetes.io/pid-pressure"}, None),
        ({"Ready": "True", "NetworkUnavailable": "True"}, {"node.kubernetes.io/network-unavailable"}, None),
    ],
)
def test_conditions_become_taints(conditions, no_schedule, no_execute) -> None:
    assert health.no_schedule_keys(node(**conditions)) == no_schedule
    assert health.no_execute_key(node(**conditions)) == no_execute


def test_taints_of_others_stay_and_ours_are_exchanged() -> None:
    failing = node(Ready="Unknown")
    failing.spec.taints = [
        core_v1.Taint(key="mine", effect="NoSchedule"),
        core_v1.Taint(key=health.NOT_READY, effect="NoSchedule"),
        core_v1.Taint(key=health.NOT_READY, effect="NoExecute"),
    ]
    found = {(t.key, t.effect) for t in health.desired_taints(failing, health.UNREACHABLE, NOW)}
    assert found == {("mine", "NoSchedule"), (health.UNREACHABLE, "NoSchedule"), (health.UNREACHABLE, "NoExecute")}
    failing.spec.taints = health.desired_taints(failing, health.UNREACHABLE, NOW)
    assert health.desired_taints(failing, health.UNREACHABLE, NOW) is None


def test_a_cordoned_node_is_tainted_and_an_uncordoned_one_is_not() -> None:
    cordoned = node(Ready="True")
    cordoned.spec.unschedulable = True
    cordoned.spec.taints = health.desired_taints(cordoned, None, NOW)
    assert [(t.key, t.effect) for t in cordoned.spec.taints] == [(health.UNSCHEDULABLE, "NoSchedule")]
    cordoned.spec.unschedulable = None
    assert health.desired_taints(cordoned, None, NOW) == []


@pytest.mark.parametrize(
    ("ready", "state"),
    [
        ([True] * 10, zones.NORMAL),
        ([False] + [True] * 9, zones.NORMAL),
        ([False] * 3, zones.FULL),
        ([False] * 6 + [True] * 4, zones.PARTIAL),
        ([False, False, True], zones.NORMAL),
    ],
)
def test_the_state_of_a_zone_depends_on_the_share_of_failed_nodes(ready, state) -> None:
    assert zones.zone_state(len(ready), ready.count(False)) == state


def test_zones_are_counted_as_nodes_are_added_fail_move_and_are_removed() -> None:
    states = zones.ZoneStates()
    for number in range(60):
        states.set_node(f"a{number}", "a", ready=True)
        states.set_node(f"b{number}", "b", ready=False)
    # one zone works: the other one's nodes are tainted at the full rate
    assert states.eviction_rate("a") == states.eviction_rate("b") == 0.1
    for number in range(40):
        states.set_node(f"a{number}", "a", ready=False)
        states.set_node(f"a{number}", "a", ready=False)
    assert states.eviction_rate("a") == 0.01
    for number in range(20, 40):
        states.set_node(f"a{number}", "b", ready=True)
    for number in range(20):
        states.remove_node(f"a{number}")
        states.remove_node(f"a{number}")
    assert states.eviction_rate("a") == 0.1
    assert states.eviction_rate("b") == 0.01
    for number in range(40, 60):
        states.set_node(f"a{number}", "a", ready=False)
    for number in range(20, 40):
        states.remove_node(f"a{number}")
    assert states.eviction_rate("a") == states.eviction_rate("b") == 0.0
    states.set_node("c", "c", ready=True)
    assert states.eviction_rate("a") == 0.1


def test_eviction_slows_down_when_a_zone_fails_and_stops_when_all_do() -> None:
    assert zones.eviction_rate(zones.NORMAL, 10, full_disruption=False) == 0.1
    assert zones.eviction_rate(zones.PARTIAL, 100, full_disruption=False) == 0.01
    assert zones.eviction_rate(zones.PARTIAL, 10, full_disruption=False) == 0.0
    assert zones.eviction_rate(zones.FULL, 10, full_disruption=True) == 0.0


def test_the_queue_releases_one_node_every_ten_seconds_in_order() -> None:
    queue = zones.ZoneQueue(0.1)
    for name in "abc":
        queue.add(name)
    assert queue.try_take("a", 0.0) == 0
    assert queue.try_take("b", 0.0) == 10
    assert queue.try_take("c", 0.0) == 20
    assert queue.try_take("b", 10.0) == 0
    queue.remove("c")
    assert "c" not in queue


def test_a_new_rate_delays_the_first_node_if_the_old_one_would_have() -> None:
    queue = zones.ZoneQueue(0.1)
    for name in "abcd":
        queue.add(name)
    assert not queue.set_rate(0.1, 0.0)
    assert queue.set_rate(0.01, 0.0)
    assert queue.try_take("a", 0.0) == 0  # the old rate would not have delayed it either
    assert queue.set_rate(0.1, 5.0)
    assert queue.try_take("b", 5.0) == 10
    assert queue.try_take("b", 15.0) == 0
    assert queue.set_rate(0.0, 40.0) and queue.try_take("c", 1000.0)
    assert queue.set_rate(0.1, 1000.0)
    assert queue.try_take("c", 1000.0) == 10
    assert queue.try_take("c", 1010.0) == 0
    assert list(queue) == ["d"]


def test_disruption_is_full_if_there_are_nodes_and_none_is_ready() -> None:
    states = zones.ZoneStates()
    assert not states.full_disruption
    states.set_node("a", "z", ready=False)
    assert states.full_disruption and states.take_changed() == {"z"}
    states.set_node("a", "z", ready=False)
    assert states.take_changed() == set()
    states.set_node("b", "y", ready=True)
    assert not states.full_disruption
    states.set_node("b", "z", ready=True)  # moved
    assert not states.full_disruption and states.take_changed() == {"y", "z"}
    states.set_node("b", "z", ready=False)
    assert states.full_disruption
    states.remove_node("a")
    states.remove_node("b")
    assert not states.full_disruption


@pytest.mark.parametrize(
    ("tolerations", "stay"),
    [
        ([], 0.0),
        ([core_v1.Toleration(operator="Exists")], None),
        (
            [core_v1.Toleration(key=health.NOT_READY, operator="Exists", effect="NoExecute", toleration_seconds=300)],
            300.0,
        ),
        ([core_v1.Toleration(key=health.NOT_READY, operator="Exists", toleration_seconds=-5)], 0.0),
        (
            [
                core_v1.Toleration(key=health.NOT_READY, operator="Exists", toleration_seconds=300),
                core_v1.Toleration(operator="Exists", toleration_seconds=20),
            ],
            20.0,
        ),
        ([core_v1.Toleration(key="other", operator="Exists")], 0.0),
    ],
)
def test_a_pod_stays_as_long_as_its_shortest_toleration(tolerations, stay) -> None:
    taints = [core_v1.Taint(key=health.NOT_READY, effect="NoExecute")]
    assert min_toleration_time(taints, tolerations) == stay


def test_pod_ranges_are_given_once_and_can_be_given_back() -> None:
    ranges = Ranges("10.244.0.0/22", 24)
    ranges.mark("10.244.01.7/24", "n0")
    ranges.mark("192.168.0.0/24", "n0")
    ranges.mark("x", "n0")
    assert [ranges.take(name) for name in ("n1", "n2", "n3")] == ["10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24"]
    with pytest.raises(RangeFull):
        ranges.take("n4")
    ranges.give_back("10.244.2.0/24", "n2")
    assert ranges.take("n4") == "10.244.2.0/24"


def test_a_node_with_the_ranges_of_others_does_not_give_them_back() -> None:
    ranges = Ranges("10.244.0.0/22", 24)
    assert ranges.take("n1") == "10.244.0.0/24"
    ranges.mark("10.244.0.0/16", "greedy")
    with pytest.raises(RangeFull):
        ranges.take("n2")
    ranges.give_back("10.244.0.0/16", "greedy")
    assert [ranges.take(name) for name in ("n2", "n3", "n4")] == ["10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"]


def test_a_mask_outside_the_cluster_range_is_refused() -> None:
    with pytest.raises(ValueError, match="does not lie within"):
        Ranges("10.244.0.0/24", 16)


def test_only_finished_pods_above_the_threshold_go_evicted_and_oldest_first() -> None:
    pods = [pod(f"p{i}", phase="Failed", age=i) for i in range(5)] + [pod("running", age=10_000)]
    pods[1].status.reason = "Evicted"
    assert [p.metadata.name for p in surplus_terminated(pods, 2)] == ["p1", "p4", "p3"]
    assert surplus_terminated(pods, 0) == []
