"""The search for victims in slices finds what one long search finds, and a check costs no look at all nodes."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.scheduler import preemption, steps, victim_search
from control.scheduler.budget_violations import BudgetViolations
from control.scheduler.budgets import Budgets, budgets_of
from control.scheduler.configuration import ProfileConfig
from control.scheduler.dry_run import DryRun
from control.scheduler.framework import Unschedulable
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import Steps
from control.scheduler.unfinished import Unfinished
from control.scheduler.victims import Victims
from kube.api import core_v1, meta_v1, policy_v1
from kube.selectors import from_map

from .clusters import HOST, ZONE, World, node, pod, spread
from .test_properties import APPS, ZONES, make_nodes, make_pod, nodes, pods

SETTINGS = settings(
    max_examples=int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def slices_of(looks: int, patch: pytest.MonkeyPatch) -> None:
    """End each slice after so many looks at the clock."""
    clock = itertools.count()
    patch.setattr(steps, "now", lambda: next(clock) / 1000)
    patch.setattr(steps, "SLICE_SECONDS", looks / 1000)


def refused(world: World, info: PodInfo) -> Unschedulable | None:
    try:
        world.algorithm.place(info)
    except Unschedulable as refusal:
        return refusal
    return None


def at_once(world: World, info: PodInfo, refusal: Unschedulable, budgets: Sequence[Any]) -> Victims | None:
    """Search as upstream describes it, with all filters anew for each check."""
    found, cluster = [], world.cluster
    for name, rejection in refusal.diagnosis.rejections.items():
        if not rejection.unresolvable:
            victims = victims_on(world, info, cluster.nodes[name], budgets)
            found += [victims] if victims is not None else []
    return min(found, key=lambda victims: victims.cost, default=None)


def victims_on(world: World, info: PodInfo, where: NodeInfo, budgets: Sequence[Any]) -> Victims | None:
    cluster, fits = world.cluster, world.algorithm.fits_with_all
    lower = sorted((p for p in where.pods.values() if p.priority < info.priority), key=order)
    left = {id(budget): budget.status.disruptions_allowed for budget in budgets}
    violating = set()
    for other in lower:
        for budget in budgets:
            if budget.spec.selector.match_labels.items() <= other.labels.items():
                left[id(budget)] -= 1
                violating |= {other.key} if left[id(budget)] < 0 else set()
    for other in lower:
        cluster.remove_for_dry_run(other, where)
    if not fits(info, where):
        for other in lower:
            cluster.add_for_dry_run(other, where)
        return None
    victims = []
    for other in sorted(lower, key=lambda p: p.key not in violating):
        cluster.add_for_dry_run(other, where)
        if not fits(info, where):
            cluster.remove_for_dry_run(other, where)
            victims.append(other)
    for other in victims:
        cluster.add_for_dry_run(other, where)
    victims.sort(key=order)
    return Victims(where.name, tuple(victims), sum(p.key in violating for p in victims)) if victims else None


def order(info: PodInfo) -> tuple[int, str, str]:
    return -info.priority, info.pod.status.start_time or "9999", info.key


def summary(found: Victims | None) -> Any:
    return found and (found.node, [victim.key for victim in found.pods], found.violations)


more_spread = st.lists(
    st.tuples(
        st.sampled_from((HOST, ZONE)),
        st.integers(1, 2),
        st.sampled_from(APPS),
        st.sampled_from((None, 2, 3)),
        st.sampled_from(("Honor", "Ignore")),
        st.sampled_from(("Honor", "Ignore")),
    ),
    max_size=4,
)


def with_constraints(incoming: core_v1.Pod, drawn: Any, away: str) -> core_v1.Pod:
    for key, skew, app, least, by_affinity, by_taints in drawn:
        incoming.spec.topology_spread_constraints.append(
            spread(
                key,
                skew,
                {"app": app},
                min_domains=least,
                node_affinity_policy=by_affinity,
                node_taints_policy=by_taints,
            )
        )
    if away and incoming.spec.affinity is None:
        not_here = core_v1.NodeSelectorRequirement(key=ZONE, operator="NotIn", values=[away])
        terms = core_v1.NodeSelector(node_selector_terms=[core_v1.NodeSelectorTerm(match_expressions=[not_here])])
        by_node = core_v1.NodeAffinity(required_during_scheduling_ignored_during_execution=terms)
        incoming.spec.affinity = core_v1.Affinity(node_affinity=by_node)
    return incoming


@SETTINGS
@given(
    nodes,
    pods,
    more_spread,
    st.sampled_from(("", *ZONES)),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from((1, 2, 5, 100)),
)
def test_victims_are_those_of_a_search_in_one_step_with_all_filters_anew(
    drawn_nodes: Any, drawn_pods: Any, drawn_spread: Any, away: str, allowed: int, nominates: bool, looks: int
) -> None:
    known = make_nodes(drawn_nodes)
    world = World(*known)
    budget = policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="b", namespace="default"),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=spread(HOST, labels={"app": "x"}).label_selector),
        status=policy_v1.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )
    if nominates:
        other = with_constraints(make_pod(90, (1, "x", 5, False, [("far", "y", HOST)])), [], "")
        world.cluster.nominations.add(PodInfo(other), known[0].metadata.name or "")
    with pytest.MonkeyPatch.context() as patch:
        slices_of(looks, patch)
        for number, drawn in enumerate(drawn_pods):
            info = PodInfo(with_constraints(make_pod(number, drawn), drawn_spread, away))
            refusal = refused(world, info)
            if refusal is None:
                world.place(info.pod)
                continue
            before = {name: (found.generation, set(found.pods)) for name, found in world.cluster.nodes.items()}
            found = world.victims(info, refusal.diagnosis, budgets_of(budget))
            assert {n: (f.generation, set(f.pods)) for n, f in world.cluster.nodes.items()} == before
            assert summary(found) == summary(at_once(world, info, refusal, [budget]))


def full(count: int, each: int) -> World:
    """Return nodes that are full of small pods."""
    world = World(*(node(f"n{i}", cpu=str(each), zone=ZONES[i % 3]) for i in range(count)))
    for i in range(count):
        for j in range(each):
            world.put(pod(f"p{i}-{j}", "1", labels={"app": "a"}, priority=j), f"n{i}")
    return world


def preemptor(cpu: str = "2") -> PodInfo:
    even = [spread(key, 1000) for key in (HOST, ZONE)]
    return PodInfo(pod("incoming", cpu, labels={"app": "a"}, priority=100, topology_spread_constraints=even))


def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to whose last item every check adds one."""
    found, fits = [0], DryRun.fits

    def counted(self: DryRun, where: NodeInfo) -> bool:
        found[-1] += 1
        return fits(self, where)

    monkeypatch.setattr(DryRun, "fits", counted)
    return found


async def test_others_have_their_turn_between_slices_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    slices_of(10, monkeypatch)
    world, info, made = full(12, 8), preemptor(), checks(monkeypatch)
    refusal = refused(world, info)
    assert refusal is not None
    with pytest.raises(Unfinished) as unfinished:
        preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())

    async def another() -> None:
        while True:
            await asyncio.sleep(0)
            made.append(0)

    other = asyncio.create_task(another())
    await unfinished.value.go_on()
    other.cancel()
    assert sum(made) == 12 * 9
    assert max(made) <= 10
    assert preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets()) is not None
    assert sum(made) == 12 * 9 + 3, "the chosen victims are searched once more"


async def test_slices_of_many_searches_are_not_in_one_iteration_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices_of(10, monkeypatch)
    world, made = full(12, 8), checks(monkeypatch)
    more = []
    for _ in range(4):
        info = preemptor()
        refusal = refused(world, info)
        assert refusal is not None
        with pytest.raises(Unfinished) as unfinished:
            preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
        more.append(unfinished.value)

    async def another() -> None:
        while True:
            made.append(0)
            await asyncio.sleep(0)

    other = asyncio.create_task(another())
    made.append(0)
    await asyncio.gather(*(each.go_on() for each in more))
    other.cancel()
    assert max(made[1:]) <= 10


def test_nodes_are_counted_for_spread_once_in_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SLICE_SECONDS", 10**9)  # one slice, also on a busy machine
    world, info = full(5, 8), preemptor()
    refusal = refused(world, info)
    assert refusal is not None
    counted, count = [], PodTopologySpread._counts
    monkeypatch.setattr(
        PodTopologySpread, "_counts", lambda self, *rest: (counted.append(rest[0].key), count(self, *rest))[1]
    )
    assert preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets()) is not None
    assert counted == [HOST, ZONE]


async def test_victims_that_are_gone_are_not_evicted_after_a_search_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    slices_of(1, monkeypatch)
    world, info = full(3, 2), preemptor("1")
    world.cluster.set_node(node("n0", cpu="2", zone="a", unschedulable=True))
    refusal = refused(world, info)
    assert refusal is not None
    with pytest.raises(Unfinished) as unfinished:
        preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    await unfinished.value.go_on()
    slices_of(100, monkeypatch)
    world.cluster.remove_node("n1")
    found = preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    assert summary(found) == ("n2", ["default/p2-0"], 0)


async def test_a_search_starts_again_a_few_times_when_none_of_its_victims_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices_of(1, monkeypatch)
    world, info = full(1, 6), preemptor("1")
    refusal = refused(world, info)
    assert refusal is not None

    async def search_and_change(number: int) -> None:
        with pytest.raises(Unfinished) as unfinished:
            preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
        await unfinished.value.go_on()
        (victims,) = info.cycle_state[preemption.NAME].found
        world.cluster.remove_pod(victims.pods[0].key)
        world.put(pod(f"late{number}", "1", labels={"app": "a"}, priority=number), "n0")

    for number in range(victim_search.MOST_SEARCHES):
        await search_and_change(number)
    assert preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets()) is None
    assert preemption.NAME not in info.cycle_state


async def test_a_victim_that_is_needed_no_longer_is_reprieved(monkeypatch: pytest.MonkeyPatch) -> None:
    slices_of(1, monkeypatch)
    world, info = full(1, 6), preemptor("3")
    refusal = refused(world, info)
    assert refusal is not None
    with pytest.raises(Unfinished) as unfinished:
        preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    await unfinished.value.go_on()
    slices_of(100, monkeypatch)
    world.cluster.remove_pod("default/p0-5")
    found = preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    assert summary(found) == ("n0", ["default/p0-1", "default/p0-0"], 0)


def test_pods_without_a_start_time_are_the_least_important_of_their_priority() -> None:
    world = World(node("n0", cpu="2"))
    for name, started in (("new", None), ("old", "2026-01-01T00:00:00Z")):
        incoming = pod(name, "1")
        incoming.status.start_time = started
        world.put(incoming, "n0")
    info = PodInfo(pod("incoming", "1", priority=1))
    refusal = refused(world, info)
    assert refusal is not None
    assert summary(world.victims(info, refusal.diagnosis, Budgets())) == ("n0", ["default/new"], 0)


def test_more_nodes_are_searched_while_all_candidates_violate_budgets() -> None:
    candidates = ProfileConfig(
        args={"DefaultPreemption": {"minCandidateNodesPercentage": 1, "minCandidateNodesAbsolute": 1}}
    )
    world = World(*(node(f"n{i}", cpu="1") for i in range(4)), profile=candidates)
    for i in range(4):
        world.put(pod(f"p{i}", "1", labels={"app": "x" if i < 3 else "free"}), f"n{i}")
    selector = spread(HOST, labels={"app": "x"}).label_selector
    budget = policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="b", namespace="default"),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=selector),
    )
    info = PodInfo(pod("incoming", "1", priority=1))
    refusal = refused(world, info)
    assert refusal is not None
    assert summary(world.victims(info, refusal.diagnosis, budgets_of(budget))) == ("n3", ["default/p3"], 0)


def test_no_budget_is_violated_by_the_eviction_of_a_pod_without_labels() -> None:
    absent = meta_v1.LabelSelectorRequirement(key="a", operator="DoesNotExist")
    budget = policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="b", namespace="default"),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=meta_v1.LabelSelector(match_expressions=[absent])),
    )
    plain, labelled = PodInfo(pod("plain")), PodInfo(pod("labelled", labels={"b": ""}))
    violations = BudgetViolations([plain, labelled]).count(budgets_of(budget), Steps(10))
    assert violations == {"default/labelled"}


def test_a_dry_run_counts_pods_only_in_the_indexes_that_it_reads() -> None:
    world = full(2, 4)
    moves: dict[str, int] = {}
    for app in ("a", "b"):
        world.cluster.count(selection := PodSelection("default", from_map({"app": app})))
        index = world.cluster._indexes._indexes[selection]
        move = index.move_in_dry_run
        index.move_in_dry_run = lambda *args, app=app, move=move: (
            moves.update({app: moves.get(app, 0) + 1}),
            move(*args),
        )
    where = world.cluster.nodes["n0"]
    pods = list(where.pods.values())
    for each in pods:
        world.cluster.remove_for_dry_run(each, where)
    assert world.cluster.count(PodSelection("default", from_map({"app": "a"}))).per_node == {"n1": 4}
    for each in pods:
        world.cluster.add_for_dry_run(each, where)
    assert moves == {"a": 8}
    assert world.cluster.count(PodSelection("default", from_map({"app": "a"}))).per_node == {"n0": 4, "n1": 4}


async def test_a_node_that_changes_during_its_search_is_searched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    slices_of(1, monkeypatch)
    world, info = full(1, 6), preemptor("1")
    refusal = refused(world, info)
    assert refusal is not None
    with pytest.raises(Unfinished) as unfinished:
        preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    world.cluster.remove_pod("default/p0-0")
    world.put(pod("late", "1", labels={"app": "a"}, priority=-1), "n0")
    await unfinished.value.go_on()
    found = preemption.find(info, refusal.diagnosis, world.algorithm, world.cluster, Budgets())
    assert summary(found) == ("n0", ["default/late"], 0)
