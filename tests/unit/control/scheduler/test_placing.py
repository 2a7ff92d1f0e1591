"""The cache and the algorithm: assumed pods, changes of nodes, cached verdicts; and a comparison with the plain way."""

from __future__ import annotations

import random

import pytest

from control.scheduler.framework import Unschedulable
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread


def test_an_assumed_pod_takes_room_at_once_and_gives_it_back() -> None:
    world = World(node("a", cpu="1"))
    world.place(pod("p", "800m"))
    assert "Insufficient cpu" in world.refusal(pod("q", "800m"))
    world.cluster.forget("default/p", "uid-p")
    assert world.place(pod("q", "800m")) == "a"


def test_a_confirmed_pod_is_counted_once() -> None:
    world = World(node("a", cpu="1"))
    incoming = pod("p", "400m")
    world.place(incoming)
    world.put(incoming, "a")
    assert not world.cluster.is_assumed("default/p") and world.cluster.nodes["a"].cpu == 400
    world.cluster.forget("default/p", "uid-p")
    assert world.cluster.nodes["a"].cpu == 400


def test_a_pod_that_went_elsewhere_than_assumed_is_counted_where_it_is() -> None:
    world = World(node("a"), node("b"))
    incoming = pod("p", "1")
    chosen = world.place(incoming)
    other = "b" if chosen == "a" else "a"
    world.put(incoming, other)
    assert (world.cluster.nodes[chosen].cpu, world.cluster.nodes[other].cpu) == (0, 1000)


def test_pods_of_a_node_that_is_not_known_yet_count_when_it_comes() -> None:
    world = World()
    world.put(pod("p", "1"), "late")
    world.cluster.set_node(node("late"))
    assert world.cluster.nodes["late"].cpu == 1000
    world.cluster.remove_node("late")
    world.cluster.set_node(node("late"))
    assert world.cluster.nodes["late"].cpu == 1000


def test_a_changed_node_is_judged_anew() -> None:
    world = World(node("a", cpu="1"))
    assert "Insufficient" in world.refusal(pod("p", "2"))
    world.cluster.set_node(node("a", cpu="4"))
    assert world.place(pod("p", "2")) == "a"
    world.cluster.set_node(node("a", cpu="4", unschedulable=True))
    assert "unschedulable" in world.refusal(pod("q"))


def test_relabelled_nodes_move_the_domain_counts() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"))
    world.put(pod("db", labels={"app": "db"}), "a")
    incoming = affinity([near({"app": "db"})])
    assert world.place(pod("p", affinity=incoming)) == "a"
    world.cluster.set_node(node("a", zone="z9"))
    world.cluster.set_node(node("b", zone="z9"))
    world.cluster.set_node(node("a", zone="z9", unschedulable=True))
    assert world.place(pod("q", affinity=incoming)) == "b"


def test_in_a_large_cluster_a_sample_is_enough_and_moves_on() -> None:
    world = World(*(node(f"n{i:03}") for i in range(400)))
    assert len({world.place(pod(f"p{i}", "100m")) for i in range(300)}) == 300


def test_a_rare_fit_is_found_in_a_large_cluster() -> None:
    world = World(*(node(f"n{i:03}", cpu="8" if i == 333 else "1") for i in range(400)))
    assert world.place(pod("p", "4")) == "n333"


@pytest.mark.parametrize("seed", range(8))
def test_no_pod_is_ever_placed_on_a_node_that_it_does_not_fit(seed: int) -> None:
    """A random history of nodes and pods, checked against the rules recorded a second time, without indexes."""
    chance = random.Random(seed)
    world = World()
    nodes: dict[str, core_v1.Node] = {}
    pods: dict[str, tuple[core_v1.Pod, str]] = {}
    for step in range(250):
        action = chance.random()
        if action < 0.1 or not nodes:
            name = f"n{chance.randrange(8)}"
            taints = [core_v1.Taint(key="t", effect="NoSchedule")] if chance.random() < 0.2 else []
            nodes[name] = node(name, cpu=str(chance.choice([1, 2, 4])), zone=f"z{chance.randrange(3)}", taints=taints)
            world.cluster.set_node(nodes[name])
        elif action < 0.13:
            name = chance.choice(sorted(nodes))
            del nodes[name]
            world.cluster.remove_node(name)
            for key in [key for key, (_, where) in pods.items() if where == name]:
                del pods[key]
                world.cluster.remove_pod(key)
        elif action < 0.35 and pods:
            key = chance.choice(sorted(pods))
            del pods[key]
            world.cluster.remove_pod(key)
        else:
            incoming = random_pod(chance, f"p{step}")
            try:
                where = world.place(incoming)
            except Unschedulable:
                assert not any(fits(incoming, candidate, nodes, pods) for candidate in nodes.values())
                continue
            assert fits(incoming, nodes[where], nodes, pods), (incoming, where)
            pods[f"default/{incoming.metadata.name}"] = (incoming, where)


def random_pod(chance: random.Random, name: str) -> core_v1.Pod:
    labels = {"app": chance.choice("ab")}
    spec: dict[str, object] = {}
    kind = chance.random()
    if kind < 0.2:
        spec["affinity"] = affinity([near(labels, chance.choice([HOST, ZONE]))], anti=True)
    elif kind < 0.35:
        spec["affinity"] = affinity([near({"app": chance.choice("ab")})])
    elif kind < 0.5:
        spec["topology_spread_constraints"] = [spread(ZONE, chance.choice([1, 2]), labels)]
    if chance.random() < 0.3:
        spec["tolerations"] = [core_v1.Toleration(operator="Exists")]
    ports = (80,) if chance.random() < 0.1 else ()
    return pod(name, chance.choice(["100m", "500m", "1500m"]), labels=labels, ports=ports, **spec)


def fits(incoming: core_v1.Pod, where: core_v1.Node, nodes, pods) -> bool:
    there = [p for p, on in pods.values() if on == where.metadata.name]
    if where.spec.taints and not incoming.spec.tolerations:
        return False
    room = int(where.status.allocatable["cpu"]) * 1000
    if sum(PodInfo(p).cpu for p in [*there, incoming]) > room:
        return False
    if PodInfo(incoming).ports and any(PodInfo(p).ports for p in there):
        return False

    def matches(term: core_v1.PodAffinityTerm, other: core_v1.Pod) -> bool:
        return term.label_selector.match_labels.items() <= other.metadata.labels.items()

    def together(term: core_v1.PodAffinityTerm, other: str) -> bool:
        key = term.topology_key
        return where.metadata.labels.get(key) == nodes[other].metadata.labels.get(key) is not None

    for other, on in pods.values():
        for owner, subject in ((incoming, other), (other, incoming)):
            anti = owner.spec.affinity.pod_anti_affinity if owner.spec.affinity else None
            for term in anti.required_during_scheduling_ignored_during_execution if anti else ():
                if matches(term, subject) and together(term, on):
                    return False
    pro = incoming.spec.affinity.pod_affinity if incoming.spec.affinity else None
    for term in pro.required_during_scheduling_ignored_during_execution if pro else ():
        friends = [on for other, on in pods.values() if matches(term, other)]
        alone = not friends and matches(term, incoming)
        if not alone and not any(together(term, on) for on in friends):
            return False
    for constraint in incoming.spec.topology_spread_constraints:
        counts = {n.metadata.labels[constraint.topology_key]: 0 for n in nodes.values()}
        for other, on in pods.values():
            if constraint.label_selector.match_labels.items() <= other.metadata.labels.items():
                counts[nodes[on].metadata.labels[constraint.topology_key]] += 1
        mine = counts[where.metadata.labels[constraint.topology_key]]
        if mine + 1 - min(counts.values()) > constraint.max_skew:
            return False
    return True
