"""Identical pods in a large cluster: one filtering serves several, and each goes to a node that is feasible and best now."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler.algorithm import Algorithm
from control.scheduler.candidates import NodeResult
from control.scheduler.cluster import Cluster
from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.ranking import SHARE, Ranking
from kube.api import core_v1

from .clusters import HOST, World, node, pod, spread

MANY = 400
TAINT = {"key": "k", "effect": "NoSchedule"}


class Filterings:
    """Counts how often nodes are filtered for a pod."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        feasible = Algorithm._feasible

        def counted(*args: object) -> object:
            self.count += 1
            return feasible(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(Algorithm, "_feasible", counted)


@pytest.fixture
def filterings(monkeypatch: pytest.MonkeyPatch) -> Filterings:
    return Filterings(monkeypatch)


def world(nodes: int = MANY, **more: object) -> World:
    return World(*(node(f"n{i}", cpu="4", pods="10", **more) for i in range(nodes)))


def test_a_filtering_serves_one_pod_for_each_so_many_nodes_that_it_found(filterings: Filterings) -> None:
    made = world()
    for number in range(100):
        made.place(pod(f"p{number}", "1"))
    found = MANY * 46 // 100
    assert filterings.count == -(-100 // (found // SHARE))


def test_pods_are_spread_over_all_nodes(filterings: Filterings) -> None:
    made = world()
    for number in range(2 * MANY):
        made.place(pod(f"p{number}", "1"))
    assert {len(info.pods) for info in made.cluster.order} <= {1, 2, 3} and filterings.count < 50


@pytest.mark.parametrize(
    "other",
    [
        pod("other", "2"),
        pod("other", "1", topology_spread_constraints=[spread(HOST, labels={})]),
        pod("other", "1", node_selector={HOST: "n1"}),
    ],
    ids=["another size", "a spread constraint", "a node by name"],
)
def test_another_pod_is_filtered_for_itself(other: object, filterings: Filterings) -> None:
    made = world()
    made.place(pod("first", "1"))
    made.place(other)  # type: ignore[arg-type]
    assert filterings.count == 2


def test_each_pod_of_a_small_cluster_is_compared_with_all_nodes(filterings: Filterings) -> None:
    made = world(99)
    for number in range(10):
        made.place(pod(f"p{number}", "1"))
    assert filterings.count == 10


def test_pods_for_which_nodes_with_scores_relative_to_each_other_differ_are_filtered_each(
    filterings: Filterings,
) -> None:
    made = world(taints=[core_v1.Taint(key="k", effect="PreferNoSchedule")])
    for number in range(3):
        made.place(pod(f"p{number}", "1"))
    assert filterings.count == 3


def test_a_pod_that_is_nominated_counts_for_the_others(filterings: Filterings) -> None:
    made = world()
    made.place(pod("first", "1"))
    made.cluster.nominations.add(PodInfo(pod("important", "4", priority=10)), "n0")
    for number in range(3):
        assert made.place(pod(f"p{number}", "1")) != "n0"
    assert filterings.count == 4


def test_a_change_of_so_many_nodes_ends_a_ranking(filterings: Filterings) -> None:
    made = world()
    made.place(pod("first", "1"))
    for i in range(MANY):
        made.put(pod(f"elsewhere-{i}"), f"n{i}")
    made.place(pod("second", "1"))
    assert filterings.count == 2


def test_nodes_that_got_pods_stay_feasible_when_these_pods_are_bound(filterings: Filterings) -> None:
    """The pod that was filtered for is bound by then, so NodeName would refuse all nodes but its own for it."""
    made = world()
    found = MANY * 46 // 100
    for number in range(MANY):
        name = f"p{number}"
        made.put(pod(name, "1"), made.place(pod(name, "1")))
    assert filterings.count == -(-MANY // (1 + found // SHARE))
    assert {len(info.pods) for info in made.cluster.order} <= {0, 1, 2}


operations = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("cordon", "remove", "fill", "taint", "uncordon")), st.integers(0, 250)),
        st.tuples(st.just("place"), st.integers(1, 8)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations)
def test_a_pod_goes_where_it_fits_whatever_changed(drawn: list[tuple[str, int]]) -> None:
    made, placed = world(250), 0
    usable = {f"n{i}" for i in range(250)}
    for kind, amount in drawn:
        name = f"n{amount}"
        if kind == "place":
            for _ in range(amount):
                chosen = made.cluster.nodes[made.place(pod(f"p{placed}", "1"))]
                placed += 1
                assert chosen.name in usable and chosen.cpu <= 4000 and len(chosen.pods) <= 10
        elif name not in made.cluster.nodes:
            continue
        elif kind == "remove":
            made.cluster.remove_node(name)
            usable.discard(name)
        elif kind == "fill":
            made.put(pod(f"filler-{name}", "4"), name)
            usable.discard(name)
        elif kind == "uncordon":
            if made.cluster.node_of(f"default/filler-{name}") is None:
                usable.add(name)
            made.cluster.set_node(node(name, cpu="4", pods="10"))
        else:
            usable.discard(name)
            more = {"unschedulable": True} if kind == "cordon" else {"taints": [core_v1.Taint(**TAINT)]}
            made.cluster.set_node(node(name, cpu="4", pods="10", **more))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=8, max_size=64),
    st.lists(st.tuples(st.integers(0, 63), st.integers(-1, 9)), max_size=30),
)
def test_the_best_node_that_is_left_comes_first(scores: list[int], changes: list[tuple[int, int]]) -> None:
    """A node is never better than it was, so the order is that of a search through all of them."""
    cluster = Cluster()
    for i in range(len(scores)):
        cluster.set_node(node(f"n{i}"))
    now = dict(zip(cluster.order, scores, strict=True))
    refused = Rejection("Fit", ("no room",))

    def judge(placed: PodInfo, info: NodeInfo) -> NodeResult:
        assert placed is waiting
        return NodeResult(info.generation, refused if now[info] < 0 else None, now[info])

    waiting = PodInfo(pod("waiting"))
    ranking = Ranking(cluster, cluster.order, [judge(waiting, info) for info in cluster.order], judge)
    for number in range(len(scores) // SHARE):
        found = ranking.next(waiting)
        feasible = [info for info in cluster.order if now[info] >= 0]
        best = max(feasible, key=lambda info: now[info], default=None)
        assert found is best
        for position, score in changes[number * 4 : number * 4 + 4]:
            info = cluster.order[position % len(scores)]
            now[info] = min(now[info], score)
            info.touch()
    assert ranking.next(waiting) is None
