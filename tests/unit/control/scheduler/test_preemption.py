"""Preemption: minimal victims, the cheapest node, budgets; and nothing is changed by looking."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from typing import Any

import pytest

from control.scheduler import budgets, preemption
from control.scheduler.alternatives import Alternatives
from control.scheduler.budgets import Budgets, budgets_of
from control.scheduler.framework import Unschedulable
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import OutOfSteps, Steps
from control.scheduler.victims import Victims
from kube.api import core_v1, meta_v1, policy_v1
from kube.informer import Change
from kube.selectors import from_label_selector

from .clusters import HOST, World, affinity, near, node, pod


def victims(world: World, desired, guards=()) -> Victims | None:
    info = PodInfo(desired)
    with pytest.raises(Unschedulable) as refusal:
        world.algorithm.place(info)
    return world.victims(info, refusal.value.diagnosis, budgets_of(*guards))


def names(found: Victims | None) -> list[str]:
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
    guard = budget("b", meta_v1.LabelSelector(match_labels={"app": "guarded"}))
    guard.status.disruptions_allowed = 0
    found = victims(world, pod("p", "1", priority=10), [guard])
    assert found is not None and (found.node, found.violations) == ("b", 0)


def budget(name: str, selector: meta_v1.LabelSelector, namespace: str = "default") -> policy_v1.PodDisruptionBudget:
    return policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name=name, namespace=namespace),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=selector),
    )


def counted(pods: Any, known: Budgets, steps: int = 10**6) -> list[list[str]]:
    left = Steps(steps)
    return [sorted(str(each.metadata.name) for each in known.of(PodInfo(each_pod), left)) for each_pod in pods]


def test_selectors_of_budgets_are_read_once_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*(node(f"n{i}", cpu="1") for i in range(4)))
    for i in range(4):
        world.put(pod(f"v{i}", "1", labels={"app": "v"}), f"n{i}")
    read: list[meta_v1.LabelSelector] = []
    monkeypatch.setattr(budgets, "from_label_selector", lambda s: (read.append(s), from_label_selector(s))[1])
    joined: list[int] = []
    monkeypatch.setattr(budgets, "Alternatives", lambda found: (joined.append(len(found)), Alternatives(found))[1])
    known = budgets_of(
        *(
            budget(f"b{i}", meta_v1.LabelSelector(match_labels={"of": namespace}), namespace)
            for i, namespace in enumerate(["default", "default", "other"])
        )
    )
    info = PodInfo(pod("p", "1", priority=10))
    with pytest.raises(Unschedulable) as refusal:
        world.algorithm.place(info)
    for _ in range(3):
        assert world.victims(info, refusal.value.diagnosis, known) is not None
        changed = budget("b0", meta_v1.LabelSelector(match_labels={"of": "default"}))
        changed.status.disruptions_allowed = 3
        known.changed(Change("MODIFIED", None, changed))
    assert (len(read), joined) == (3, [2])


def test_budgets_follow_their_objects_and_one_that_demands_nothing_counts_nobody() -> None:
    known = Budgets()
    selecting = meta_v1.LabelSelector(match_labels={"app": "x"})
    for name, selector in (("one", selecting), ("all", meta_v1.LabelSelector()), ("none", None)):
        known.changed(Change("ADDED", None, budget(name, selector)))  # type: ignore[arg-type]
    here, there = pod("p", labels={"app": "x"}), pod("p", labels={"app": "x"}, namespace="other")
    assert counted([here, there], known) == [["one"], []]
    known.changed(Change("MODIFIED", None, budget("one", meta_v1.LabelSelector(match_labels={"app": "y"}))))
    assert counted([here], known) == [[]]
    for name in ("one", "all", "none"):
        known.changed(Change("DELETED", None, budget(name, selecting)))
    assert (known._namespaces, known._written) == ({}, {})


def many_terms(number: int, operator: str = "NotIn") -> meta_v1.LabelSelector:
    return meta_v1.LabelSelector(
        match_expressions=[
            meta_v1.LabelSelectorRequirement(
                key=f"k{i}", operator=operator, values=["z"] if operator == "NotIn" else []
            )
            for i in range(number)
        ]
    )


async def test_a_large_selector_is_compiled_beside_the_loop_and_compared_at_its_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(
        budgets, "from_label_selector", lambda s: (threads.append(threading.get_ident()), from_label_selector(s))[1]
    )
    known, number = Budgets(), 20_000
    fits = {f"k{i}": "" for i in range(number)}
    known.changed(Change("ADDED", None, budget("large", many_terms(number))))
    victims_ = [PodInfo(pod(f"v{i}", labels=fits | ({f"k{i}": "z"} if i else {}))) for i in range(4)]
    assert known.of(victims_[0], Steps(0)) == []
    async with asyncio.timeout(20):
        while not known._namespaces["default"].selectors:
            await asyncio.sleep(0.005)
    assert threads and threading.get_ident() not in threads
    steps = Steps(10**6)
    assert [len(known.of(each, steps)) for each in victims_] == [1, 0, 0, 0]
    assert 10**6 - steps.left >= 4 * number // 4 // 32
    assert [len(known.of(each, Steps(0))) for each in victims_] == [1, 0, 0, 0], "what was found is remembered"
    left = Steps(number // 4 // 32)
    with pytest.raises(OutOfSteps):
        for name in ("p", "q"):
            known.of(PodInfo(pod(name, labels=fits)), left)


def large_budget(name: str) -> policy_v1.PodDisruptionBudget:
    return budget(name, many_terms(200))


def test_results_of_comparisons_are_freed_with_their_pod_and_with_their_budget() -> None:
    known = budgets_of(large_budget("one"), large_budget("two"))
    labels = {f"k{i}": "" for i in range(4000)}
    pods = [PodInfo(pod(f"v{i}", labels=dict(labels))) for i in range(3)]
    gone = [weakref.ref(each) for each in pods]
    for each in pods:
        assert len(known.of(each, Steps(10**6))) == 2
    assert sorted(len(results) for _, results in known._results.values()) == [3, 3]
    del pods[1:], each
    gc.collect()
    assert [ref() is None for ref in gone] == [False, True, True]
    assert [len(results) for _, results in known._results.values()] == [1, 1]
    known.changed(Change("DELETED", None, large_budget("one")))
    assert list(known._results) == ["default/two"]


def test_the_number_of_cached_results_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "MOST_REMEMBERED", 8)
    known = budgets_of(*(large_budget(f"b{i}") for i in range(3)))
    pods = [PodInfo(pod(f"v{i}", labels={f"k{i}": "" for i in range(4000)})) for i in range(5)]
    for each in pods:
        assert len(known.of(each, Steps(10**6))) == 3
        assert sum(len(results) for _, results in known._results.values()) <= 8


def test_a_result_holds_for_the_labels_that_were_compared() -> None:
    known, each = budgets_of(large_budget("b")), PodInfo(pod("v", labels={f"k{i}": "" for i in range(4000)}))
    assert len(known.of(each, Steps(10**6))) == 1
    each.labels = {**each.labels, "k7": "z"}
    assert known.of(each, Steps(10**6)) == []


def test_small_and_large_selectors_together_match_as_each_alone() -> None:
    chance = random.Random(3)
    selectors = [
        meta_v1.LabelSelector(match_labels={key: "v" for key in chance.sample("abcdef", chance.randint(1, 3))})
        for _ in range(60)
    ] + [many_terms(100), many_terms(100, "Exists"), many_terms(20, "DoesNotExist")]
    known = budgets_of(*(budget(f"b{i}", selector) for i, selector in enumerate(selectors)))
    for _ in range(100):
        labels = {key: chance.choice("vw") for key in chance.sample("abcdef", chance.randint(0, 6))}
        labels |= {f"k{i}": "" for i in range(chance.choice([0, 1, 50, 100]))}
        wanted = sorted(f"b{i}" for i, s in enumerate(selectors) if from_label_selector(s).matches(labels))
        assert counted([pod("p", labels=labels)], known) == [wanted]


def test_anti_affinity_can_be_solved_by_eviction() -> None:
    world = World(node("a"))
    world.put(pod("x", labels={"app": "x"}, priority=1), "a")
    desired = pod("p", priority=10, affinity=affinity([near({"app": "x"}, HOST)], anti=True))
    assert names(victims(world, desired)) == ["x"]


def test_a_nominated_pod_keeps_its_room_from_lesser_pods() -> None:
    world = World(node("a", cpu="1"))
    world.cluster.nominations.add(PodInfo(pod("vip", "800m", priority=10)), "a")
    assert "Insufficient cpu" in world.refusal(pod("p", "500m", priority=1))
    assert world.place(pod("vip", "800m", priority=10)) == "a"


def test_a_pod_with_preemption_policy_never_does_not_preempt() -> None:
    world = World(node("a"))
    never = PodInfo(pod("p", preemption_policy="Never"))
    assert preemption.not_eligible(never, world.cluster) == "not eligible due to preemptionPolicy=Never."


def test_the_preemption_message_distinguishes_unresolvable_nodes_from_those_without_victims() -> None:
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
    desired = pod("big", f"{chance.randrange(1, 5)}", priority=100)
    found = victims(world, desired)
    assert found is not None
    assert {name: (info.cpu, sorted(info.pods)) for name, info in world.cluster.nodes.items()} == before
    for victim in found.pods:
        world.cluster.remove_pod(victim.key)
    assert world.place(desired) == found.node


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
    desired = pod("p", "1", priority=10)
    desired.status.nominated_node_name = "n"
    assert preemption.not_eligible(PodInfo(desired), world.cluster) == why


def test_a_preemptor_waits_for_its_own_victims_although_its_nomination_was_not_written() -> None:
    world = World(node("n", cpu="1"))
    world.put(preempted("victim", "PreemptionByScheduler"), "n")
    desired = PodInfo(pod("p", "1", priority=10))
    world.cluster.nominations.add(desired, "n")
    assert preemption.not_eligible(desired, world.cluster).endswith("a terminating pod on the nominated node.")
