"""Preemption: minimal victims, the cheapest node, budgets; and nothing is changed by looking."""

from __future__ import annotations

import random

import pytest

from control.scheduler import preemption
from control.scheduler.framework import Unschedulable
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1, policy_v1
from kube.selectors import LabelSelector, from_label_selector

from .clusters import HOST, World, affinity, near, node, pod


def victims(world: World, wish, budgets=()) -> preemption.Victims | None:
    info = PodInfo(wish)
    with pytest.raises(Unschedulable) as refusal:
        world.algorithm.place(info)
    return preemption.find(info, refusal.value.diagnosis, world.algorithm, world.cluster, lambda: list(budgets))


def names(found: preemption.Victims | None) -> list[str]:
    assert found is not None
    return [victim.pod.metadata.name for victim in found.pods]


def test_only_as_many_as_needed_go_the_least_important_first() -> None:
    world = World(node("a", cpu="4"))
    for name, priority in (("low", 1), ("mid", 2), ("high", 3)):
        world.put(pod(name, "1", priority=priority), "a")
    assert names(victims(world, pod("p", "2", priority=10))) == ["low"]
    assert names(victims(world, pod("p", "3", priority=10))) == ["mid", "low"]


def test_pods_of_the_same_or_higher_priority_are_safe() -> None:
    world = World(node("a", cpu="1"))
    world.put(pod("peer", "1", priority=10), "a")
    assert victims(world, pod("p", "1", priority=10)) is None


def test_the_node_with_the_least_important_victims_is_taken() -> None:
    world = World(node("a", cpu="1"), node("b", cpu="1"))
    world.put(pod("x", "1", priority=5), "a")
    world.put(pod("y", "1", priority=2), "b")
    found = victims(world, pod("p", "1", priority=10))
    assert found is not None and found.node == "b"


def test_a_node_that_no_eviction_helps_is_not_considered() -> None:
    world = World(node("a", cpu="1", unschedulable=True), node("b", cpu="1"))
    world.put(pod("x", "1", priority=1), "a")
    world.put(pod("y", "1", priority=5), "b")
    found = victims(world, pod("p", "1", priority=10))
    assert found is not None and found.node == "b"


def test_a_budget_turns_the_choice_to_the_other_node() -> None:
    world = World(node("a", cpu="1"), node("b", cpu="1"))
    world.put(pod("x", "1", priority=1, labels={"app": "guarded"}), "a")
    world.put(pod("y", "1", priority=5), "b")
    budget = policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="b", namespace="default"),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=meta_v1.LabelSelector(match_labels={"app": "guarded"})),
        status=policy_v1.PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    found = victims(world, pod("p", "1", priority=10), [budget])
    assert found is not None and (found.node, found.violations) == ("b", 0)


def test_selectors_of_budgets_are_read_once_and_of_the_victims_namespaces_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(*(node(f"n{i}", cpu="1") for i in range(4)))
    for i in range(4):
        world.put(pod(f"v{i}", "1"), f"n{i}")
    read: list[meta_v1.LabelSelector] = []

    def counted(selector: meta_v1.LabelSelector) -> LabelSelector:
        read.append(selector)
        return from_label_selector(selector)

    monkeypatch.setattr(preemption, "from_label_selector", counted)
    budgets = [
        policy_v1.PodDisruptionBudget(
            metadata=meta_v1.ObjectMeta(name=f"b{i}", namespace=namespace),
            spec=policy_v1.PodDisruptionBudgetSpec(selector=meta_v1.LabelSelector(match_labels={"of": namespace})),
        )
        for i, namespace in enumerate(["default", "default", "other"])
    ]
    assert victims(world, pod("p", "1", priority=10), budgets) is not None
    assert [selector.match_labels["of"] for selector in read] == ["default", "default"]


def test_anti_affinity_can_be_solved_by_eviction() -> None:
    world = World(node("a"))
    world.put(pod("x", labels={"app": "x"}, priority=1), "a")
    wish = pod("p", priority=10, affinity=affinity([near({"app": "x"}, HOST)], anti=True))
    assert names(victims(world, wish)) == ["x"]


def test_a_nominated_pod_keeps_its_room_from_lesser_pods() -> None:
    world = World(node("a", cpu="1"))
    world.cluster.nominate(PodInfo(pod("vip", "800m", priority=10)), "a")
    assert "Insufficient cpu" in world.refusal(pod("p", "500m", priority=1))
    assert world.place(pod("vip", "800m", priority=10)) == "a"


def test_a_pod_that_must_not_preempt_says_so() -> None:
    world = World(node("a"))
    never = PodInfo(pod("p", preemption_policy="Never"))
    assert preemption.not_eligible(never, world.cluster) == "not eligible due to preemptionPolicy=Never."


def test_the_explanation_tells_hopeless_nodes_from_those_without_victims() -> None:
    world = World(node("a", unschedulable=True), node("b", cpu="1"))
    world.put(pod("y", "1", priority=50), "b")
    info = PodInfo(pod("p", "1", priority=10))
    with pytest.raises(Unschedulable) as refusal:
        world.algorithm.place(info)
    assert preemption.explain(refusal.value.diagnosis) == (
        "0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize("seed", range(5))
def test_after_the_eviction_the_pod_always_fits_and_looking_changed_nothing(seed: int) -> None:
    chance = random.Random(seed)
    world = World(*(node(f"n{i}", cpu="4") for i in range(4)))
    for i in range(16):
        world.put(pod(f"p{i}", "1", priority=chance.randrange(5), labels={"app": chance.choice("ab")}), f"n{i % 4}")
    before = {name: (info.cpu, sorted(info.pods)) for name, info in world.cluster.nodes.items()}
    wish = pod("big", f"{chance.randrange(1, 5)}", priority=100)
    found = victims(world, wish)
    assert found is not None
    assert {name: (info.cpu, sorted(info.pods)) for name, info in world.cluster.nodes.items()} == before
    for victim in found.pods:
        world.cluster.remove_pod(victim.key)
    assert world.place(wish) == found.node


def preempted(name: str, reason: str) -> core_v1.Pod:
    found = pod(name, "1", priority=1)
    found.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    found.status.conditions = [core_v1.PodCondition(type="DisruptionTarget", status="True", reason=reason)]
    return found


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("PreemptionByScheduler", "not eligible due to a terminating pod on the nominated node."),
        ("EvictionByEvictionAPI", ""),
    ],
)
def test_a_preemptor_waits_for_its_own_victims_and_for_no_others(reason: str, why: str) -> None:
    world = World(node("n", cpu="1"))
    world.put(preempted("victim", reason), "n")
    wish = pod("p", "1", priority=10)
    wish.status.nominated_node_name = "n"
    assert preemption.not_eligible(PodInfo(wish), world.cluster) == why
