"""Each plugin through the whole algorithm: the selected node, or the exact message of the rejection."""

from __future__ import annotations

import pytest

from kube.api import core_v1
from kube.selectors import from_map

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread


def requirement(key: str, operator: str, *values: str) -> core_v1.NodeSelectorTerm:
    return core_v1.NodeSelectorTerm(
        match_expressions=[core_v1.NodeSelectorRequirement(key=key, operator=operator, values=list(values))]
    )


def node_affinity(
    *terms: core_v1.NodeSelectorTerm, preferred: core_v1.NodeSelectorTerm | None = None
) -> core_v1.Affinity:
    required = core_v1.NodeSelector(node_selector_terms=list(terms)) if terms else None
    weighted = [core_v1.PreferredSchedulingTerm(weight=10, preference=preferred)] if preferred else []
    return core_v1.Affinity(
        node_affinity=core_v1.NodeAffinity(
            required_during_scheduling_ignored_during_execution=required,
            preferred_during_scheduling_ignored_during_execution=weighted,
        )
    )


TAINT = core_v1.Taint(key="dedicated", value="gpu", effect="NoSchedule")


@pytest.mark.parametrize(
    ("nodes", "incoming", "message"),
    [
        ([], pod("p"), "no nodes available to schedule pods"),
        ([node("a", cpu="1")], pod("p", "2"), "0/1 nodes are available: 1 Insufficient cpu."),
        (
            [node("a", cpu="1", memory="1Gi")],
            pod("p", "2", "2Gi"),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
        ),
        ([node("a", pods="0")], pod("p"), "0/1 nodes are available: 1 Too many pods."),
        (
            [node("a"), node("b", extended={"example.com/gpu": "1"})],
            pod("p", requests={"example.com/gpu": "2"}),
            "0/2 nodes are available: 2 Insufficient example.com/gpu.",
        ),
        ([node("a", unschedulable=True)], pod("p"), "0/1 nodes are available: 1 node(s) were unschedulable."),
        ([node("a", taints=[TAINT])], pod("p"), "0/1 nodes are available: 1 node(s) had untolerated taint(s)."),
        (
            [node("a")],
            pod("p", node_selector={"disk": "ssd"}),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            [node("a")],
            pod("p", node_name="z"),
            "0/1 nodes are available: 1 node(s) didn't match the requested node name.",
        ),
        (
            [node("a"), node("b", cpu="1"), node("c", taints=[TAINT])],
            pod("p", "2", node_selector={"x": "y"}),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), "
            "2 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            [node("a")],
            pod("p", affinity=affinity([near({"app": "db"})])),
            "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
        ),
        (
            [node("a")],
            pod("p", labels={"app": "a"}, topology_spread_constraints=[spread("rack")]),
            "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).",
        ),
    ],
)
def test_an_unschedulable_pod_gets_the_reason(nodes, incoming, message) -> None:
    assert World(*nodes).refusal(incoming) == message


def test_a_host_port_is_given_once_a_node() -> None:
    world = World(node("a"), node("b"))
    assert {world.place(pod("p", ports=(80,))), world.place(pod("q", ports=(80,)))} == {"a", "b"}
    assert world.refusal(pod("r", ports=(80,))) == (
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    )
    world.cluster.remove_pod("default/p")
    world.place(pod("r", ports=(80,)))


def test_a_toleration_opens_a_tainted_node() -> None:
    exact = core_v1.Toleration(key="dedicated", operator="Equal", value="gpu", effect="NoSchedule")
    world = World(node("a", taints=[TAINT]))
    assert world.place(pod("p", tolerations=[exact])) == "a"
    assert world.place(pod("q", tolerations=[core_v1.Toleration(operator="Exists")])) == "a"
    wrong = core_v1.Toleration(key="dedicated", operator="Equal", value="cpu", effect="NoSchedule")
    assert "untolerated" in world.refusal(pod("r", tolerations=[wrong]))


def test_prefer_no_schedule_taints_are_avoided_but_not_forbidden() -> None:
    soft = core_v1.Taint(key="old", effect="PreferNoSchedule")
    world = World(node("a", taints=[soft]), node("b"))
    assert world.place(pod("p")) == "b"
    assert World(node("a", taints=[soft])).place(pod("p")) == "a"


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (requirement("disk", "In", "ssd", "nvme"), True),
        (requirement("disk", "NotIn", "ssd"), False),
        (requirement("disk", "Exists"), True),
        (requirement("disk", "DoesNotExist"), False),
        (requirement("cores", "Gt", "7"), True),
        (requirement("cores", "Lt", "8"), False),
        (core_v1.NodeSelectorTerm(), False),
    ],
)
def test_node_affinity_operators(term, fits) -> None:
    world = World(node("a", labels={"disk": "ssd", "cores": "8"}))
    incoming = pod("p", affinity=node_affinity(term))
    if fits:
        assert world.place(incoming) == "a"
    else:
        assert "node affinity/selector" in world.refusal(incoming)


def test_preferred_node_affinity_decides_between_equals() -> None:
    world = World(node("a"), node("b", labels={"disk": "ssd"}), node("c"))
    assert world.place(pod("p", affinity=node_affinity(preferred=requirement("disk", "Exists")))) == "b"


def test_affinity_that_names_a_node_looks_at_that_node_only() -> None:
    named = core_v1.NodeSelectorTerm(
        match_fields=[core_v1.NodeSelectorRequirement(key="metadata.name", operator="In", values=["b"])]
    )
    world = World(node("a"), node("b", cpu="1"))
    assert world.place(pod("p", affinity=node_affinity(named))) == "b"
    assert world.refusal(pod("q", "2", affinity=node_affinity(named))) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_the_emptier_node_is_preferred() -> None:
    world = World(node("a"), node("b"))
    world.put(pod("old", "2", "4Gi"), "a")
    assert world.place(pod("p", "1", "1Gi")) == "b"


def test_of_equally_full_nodes_the_one_used_evenly_is_preferred() -> None:
    for _ in range(3):  # a tie would be broken at random
        lopsided = [node(name) for name in "abcdef"]
        world = World(*lopsided, node("even"))
        for other in lopsided:
            name = other.metadata.name or ""
            world.put(pod(f"on-{name}", cpu="2"), name)
        world.put(pod("on-even", memory="4Gi"), "even")
        # Afterwards: 3/4 of the cpu and 1/8 of the memory on the one kind, 1/4 and 5/8 on the other.
        assert world.place(pod("p", "1", "1Gi")) == "even"


def test_equal_pods_spread_over_equal_nodes() -> None:
    world = World(*(node(name) for name in "abcd"))
    assert sorted(world.place(pod(f"p{i}", "100m")) for i in range(8)) == sorted("aabbccdd")


def test_a_large_image_draws_the_pod_to_where_it_is() -> None:
    world = World(node("a"), node("b", images={"big:latest": 900 * 1024 * 1024}))
    assert world.place(pod("p", image="big")) == "b"


def test_required_affinity_goes_to_the_domain_of_its_friends() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"), node("c", zone="z2"))
    world.put(pod("db", labels={"app": "db"}), "b")
    assert world.place(pod("p", affinity=affinity([near({"app": "db"})]))) in ("b", "c")


def test_the_first_of_a_group_that_wants_its_own_kind_may_go_anywhere() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"))
    first = world.place(pod("p0", labels={"app": "a"}, affinity=affinity([near({"app": "a"})])))
    for i in range(1, 5):
        assert world.place(pod(f"p{i}", labels={"app": "a"}, affinity=affinity([near({"app": "a"})]))) == first


def test_required_anti_affinity_keeps_apart_in_both_directions() -> None:
    world = World(node("a"), node("b"))
    lonely = affinity([near({"app": "a"}, HOST)], anti=True)
    assert {world.place(pod(f"p{i}", labels={"app": "a"}, affinity=lonely)) for i in range(2)} == {"a", "b"}
    assert world.refusal(pod("p2", labels={"app": "a"}, affinity=lonely)) == (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    )
    assert world.refusal(pod("q", labels={"app": "a"})) == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    assert world.place(pod("r", labels={"app": "b"})) in ("a", "b")


def test_anti_affinity_ends_with_the_pod_that_had_it() -> None:
    world = World(node("a"))
    world.place(pod("p", affinity=affinity([near({"app": "x"}, HOST)], anti=True)))
    assert "existing pods" in world.refusal(pod("x", labels={"app": "x"}))
    world.cluster.remove_pod("default/p")
    assert world.place(pod("x", labels={"app": "x"})) == "a"


def test_affinity_applies_to_its_own_namespace_by_default() -> None:
    world = World(node("a", zone="z1"), namespaces={"default": {}, "prod": {"env": "prod"}})
    world.put(pod("db", labels={"app": "db"}, namespace="prod"), "a")
    assert "affinity rules" in world.refusal(pod("p", affinity=affinity([near({"app": "db"})])))
    named = near({"app": "db"})
    named.namespaces = ["prod"]
    assert world.place(pod("q", affinity=affinity([named]))) == "a"
    selected = near({"app": "db"})
    selected.namespace_selector = core_v1.meta_v1.LabelSelector(match_labels={"env": "prod"})
    assert world.place(pod("r", affinity=affinity([selected]))) == "a"


def test_preferred_affinity_and_its_opposite_move_pods() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"))
    world.put(pod("db", labels={"app": "db"}), "b")
    assert world.place(pod("p", affinity=affinity(preferred=[near({"app": "db"})]))) == "b"
    world.cluster.remove_pod("default/p")
    assert world.place(pod("q", affinity=affinity(preferred=[near({"app": "db"})], anti=True))) == "a"


def test_hard_spreading_keeps_the_skew() -> None:
    world = World(*(node(f"n{i}", zone=f"z{i % 3}") for i in range(6)))
    zones = [
        world.cluster.nodes[
            world.place(pod(f"p{i}", labels={"app": "a"}, topology_spread_constraints=[spread(ZONE)]))
        ].labels[ZONE]
        for i in range(9)
    ]
    for end in range(1, 10):
        counts = [zones[:end].count(z) for z in ("z0", "z1", "z2")]
        assert max(counts) - min(counts) <= 1


def test_a_full_zone_blocks_hard_spreading_in_the_others() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2", pods="0"))
    incoming = {"labels": {"app": "a"}, "topology_spread_constraints": [spread(ZONE)]}
    assert world.place(pod("p", **incoming)) == "a"
    assert world.refusal(pod("q", **incoming)) == (
        "0/2 nodes are available: 1 Too many pods, 1 node(s) didn't match pod topology spread constraints."
    )


def test_nodes_that_the_pod_cannot_use_do_not_count_for_the_skew() -> None:
    world = World(node("a", zone="z1", labels={"ok": "y"}), node("b", zone="z2"))
    incoming = {"labels": {"app": "a"}, "topology_spread_constraints": [spread(ZONE)], "node_selector": {"ok": "y"}}
    assert [world.place(pod(f"p{i}", **incoming)) for i in range(3)] == ["a", "a", "a"]


def test_too_few_domains_count_as_an_empty_one() -> None:
    world = World(node("a", zone="z1"))
    incoming = {"labels": {"app": "a"}, "topology_spread_constraints": [spread(ZONE, min_domains=2)]}
    assert world.place(pod("p", **incoming)) == "a"
    assert "topology spread" in world.refusal(pod("q", **incoming))


def test_terminating_pods_do_not_count_for_the_skew() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2", pods="0"))
    leaving = pod("old", labels={"app": "a"})
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    world.put(leaving, "a")
    assert world.place(pod("p", labels={"app": "a"}, topology_spread_constraints=[spread(ZONE)])) == "a"


def test_match_label_keys_spread_each_revision_by_itself() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"))
    world.put(pod("old", labels={"app": "a", "rev": "1"}), "a")
    constraint = spread(ZONE, match_label_keys=["rev"])
    placed = {
        world.place(pod(f"p{i}", labels={"app": "a", "rev": "2"}, topology_spread_constraints=[constraint]))
        for i in range(2)
    }
    assert placed == {"a", "b"}


def test_pods_of_one_workload_spread_softly_by_default() -> None:
    world = World(node("a"), node("b", cpu="3500m"), kin=lambda found: from_map({"app": "a"}))
    placed = [world.place(pod(f"p{i}", labels={"app": "a"})) for i in range(4)]
    assert placed.count("a") == placed.count("b") == 2


def test_soft_spreading_prefers_the_empty_zone() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2", cpu="2"))
    world.put(pod("old", labels={"app": "a"}), "a")
    constraint = spread(ZONE, when="ScheduleAnyway")
    assert world.place(pod("p", labels={"app": "a"}, topology_spread_constraints=[constraint])) == "b"
