"""Properties of every cluster: no pod goes where it does not fit, nobody is evicted in vain, indexes equal counts.

The rules are written out here once more, naively, from the objects alone.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.scheduler.budgets import budgets_of
from control.scheduler.framework import Unschedulable
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, policy_v1
from kube.selectors import from_map

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread

ZONES, APPS = ("a", "b", "c"), ("x", "y")
TAINT = core_v1.Taint(key="dedicated", value="gpu", effect="NoSchedule")
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

nodes = st.lists(
    st.tuples(st.sampled_from(("", *ZONES)), st.integers(1, 4), st.booleans(), st.booleans()), min_size=1, max_size=6
)
terms = st.lists(
    st.tuples(
        st.sampled_from(("near", "far", "spread", "port", "zone")), st.sampled_from(APPS), st.sampled_from((HOST, ZONE))
    ),
    max_size=2,
)
pods = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(APPS), st.integers(0, 3), st.booleans(), terms),
    min_size=1,
    max_size=14,
)


def make_nodes(drawn) -> list[core_v1.Node]:
    return [
        node(
            f"n{i}",
            cpu=str(cpu),
            pods="4",
            zone=zone,
            taints=[TAINT] if tainted else [],
            unschedulable=cordoned or None,
        )
        for i, (zone, cpu, tainted, cordoned) in enumerate(drawn)
    ]


def make_pod(number: int, drawn) -> core_v1.Pod:
    cpu, app, priority, tolerant, terms = drawn
    spec: dict[str, object] = {"priority": priority}
    ports: tuple[int, ...] = ()
    if tolerant:
        spec["tolerations"] = [core_v1.Toleration(key="dedicated", operator="Exists")]
    for kind, other, key in terms:
        if kind == "near":
            spec["affinity"] = affinity(required=[near({"app": other}, key)])
        elif kind == "far":
            spec["affinity"] = affinity(required=[near({"app": other}, key)], anti=True)
        elif kind == "spread":
            spec["topology_spread_constraints"] = [spread(key, 1, {"app": app})]
        elif kind == "port":
            ports = (8080,)
        else:
            spec["node_selector"] = {ZONE: ZONES[0]}
    return pod(f"p{number}", str(cpu) if cpu else "", labels={"app": app}, ports=ports, **spec)


# -- the rules, naively -----------------------------------------------------------------------------------------------
def cpu_of(incoming: core_v1.Pod) -> int:
    return int(incoming.spec.containers[0].resources.requests.get("cpu", 0))


def wants(incoming: core_v1.Pod, kind: str) -> list[tuple[dict[str, str], str]]:
    found = getattr(incoming.spec.affinity, kind) if incoming.spec.affinity else None
    terms = found.required_during_scheduling_ignored_during_execution if found else []
    return [(term.label_selector.match_labels, term.topology_key) for term in terms]


def matches(labels: dict[str, str], incoming: core_v1.Pod) -> bool:
    return all(incoming.metadata.labels.get(key) == value for key, value in labels.items())


def why_not(incoming: core_v1.Pod, where: core_v1.Node, all_nodes, placed: dict[str, list[core_v1.Pod]]) -> str:
    """Return why a pod may not be on a node beside what is placed; "" where it may."""
    here, labels = placed[where.metadata.name], where.metadata.labels
    tolerated = {toleration.key for toleration in incoming.spec.tolerations}
    by_name = {found.metadata.name: found for found in all_nodes}
    if where.spec.unschedulable:
        return "cordoned"
    if any(taint.key not in tolerated for taint in where.spec.taints):
        return "taint"
    if any(labels.get(key) != value for key, value in incoming.spec.node_selector.items()):
        return "selector"
    if len(here) + 1 > int(where.status.allocatable["pods"]):
        return "pods"
    if sum(map(cpu_of, here)) + cpu_of(incoming) > int(where.status.allocatable["cpu"]) and cpu_of(incoming):
        return "cpu"
    if incoming.spec.containers[0].ports and any(other.spec.containers[0].ports for other in here):
        return "port"
    everybody = [(other, by_name[name].metadata.labels) for name, others in placed.items() for other in others]
    for wanted, key in wants(incoming, "pod_affinity"):
        there = [found.get(key) for other, found in everybody if matches(wanted, other) and key in found]
        if key not in labels or (labels[key] not in there and (there or not matches(wanted, incoming))):
            return "affinity"
    for unwanted, key in wants(incoming, "pod_anti_affinity"):
        if key in labels and any(matches(unwanted, o) and f.get(key) == labels[key] for o, f in everybody):
            return "anti-affinity"
    for other, found in everybody:
        for unwanted, key in wants(other, "pod_anti_affinity"):
            if matches(unwanted, incoming) and key in found and found[key] == labels.get(key):
                return "anti-affinity of another"
    for constraint in incoming.spec.topology_spread_constraints:
        key, selector = constraint.topology_key, constraint.label_selector.match_labels
        eligible = [
            n.metadata.labels
            for n in all_nodes
            if key in n.metadata.labels
            and all(n.metadata.labels.get(k) == v for k, v in incoming.spec.node_selector.items())
        ]
        if key not in labels:
            return "no domain"
        counts = Counter({found[key]: 0 for found in eligible})
        counts.update(f[key] for o, f in everybody if matches(selector, o) and any(f is e for e in eligible))
        if counts[labels[key]] + matches(selector, incoming) - min(counts.values()) > constraint.max_skew:
            return "skew"
    return ""


@SETTINGS
@given(nodes, pods)
def test_no_pod_goes_where_it_does_not_fit_and_none_waits_that_fits_somewhere(drawn_nodes, drawn_pods) -> None:
    known = make_nodes(drawn_nodes)
    world = World(*known)
    placed: dict[str, list[core_v1.Pod]] = {found.metadata.name: [] for found in known}
    for number, drawn in enumerate(drawn_pods):
        incoming = make_pod(number, drawn)
        reasons = {found.metadata.name: why_not(incoming, found, known, placed) for found in known}
        try:
            chosen = world.place(incoming)
        except Unschedulable:
            assert all(reasons.values()), reasons
            continue
        assert not reasons[chosen], (chosen, reasons)
        placed[chosen].append(incoming)


@SETTINGS
@given(nodes, pods, st.integers(0, 2))
def test_nobody_is_evicted_without_the_pod_getting_its_place(drawn_nodes, drawn_pods, allowed: int) -> None:
    known = make_nodes(drawn_nodes)
    world = World(*known)
    placed: dict[str, list[core_v1.Pod]] = {found.metadata.name: [] for found in known}
    budget = policy_v1.PodDisruptionBudget(
        spec=policy_v1.PodDisruptionBudgetSpec(selector=spread(HOST, labels={"app": "x"}).label_selector),
        status=policy_v1.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )
    budget.metadata.namespace = "default"
    for number, drawn in enumerate(drawn_pods):
        incoming = make_pod(number, drawn)
        try:
            chosen = world.place(incoming)
        except Unschedulable as refusal:
            info = PodInfo(incoming)
            found = world.victims(info, refusal.diagnosis, budgets_of(budget))
            if found is None:
                continue
            gone = {victim.pod.metadata.name for victim in found.pods}
            assert gone and all(victim.priority < info.priority for victim in found.pods)
            where = next(n for n in known if n.metadata.name == found.node)
            left = {name: [p for p in there if p.metadata.name not in gone] for name, there in placed.items()}
            assert not why_not(incoming, where, known, left)
            for spared in found.pods:  # and each of them is in the way, given that the others go
                with_one = {**left, found.node: [*left[found.node], spared.pod]}
                assert why_not(incoming, where, known, with_one) or len(found.pods) > 1
        else:
            placed[chosen].append(incoming)


moves = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "relabel", "gone", "back")), st.integers(0, 9), st.integers(0, 3), terms
    ),
    max_size=40,
)


@SETTINGS
@given(moves)
def test_incremental_indexes_equal_a_recount(drawn) -> None:
    """Pods come and go, nodes change labels, vanish and come back; asked in between, so that indexes exist."""
    known = {f"n{i}": node(f"n{i}", zone=ZONES[i % 3]) for i in range(4)}
    world = World(*known.values())
    there: dict[str, core_v1.Pod] = {}
    questions = [PodSelection("default", from_map({"app": app})) for app in APPS]
    for step, number, where, terms in drawn:
        name, key = f"n{where}", f"p{number}"
        if step == "add" and key not in there and name in known:
            there[key] = make_pod(number, (1, APPS[number % 2], 0, False, terms))
            world.put(there[key], name)
        elif step == "remove" and key in there:
            del there[key]
            world.cluster.remove_pod(f"default/{key}")
        elif step == "relabel" and name in known:
            known[name] = node(name, zone=ZONES[number % 3])
            world.cluster.set_node(known[name])
        elif step == "gone" and name in known:
            del known[name]
            world.cluster.remove_node(name)
        elif step == "back" and name not in known:
            known[name] = node(name, zone=ZONES[number % 3])
            world.cluster.set_node(known[name])
        placed = [p for p in there.values() if p.spec.node_name in known]
        for question, app in zip(questions, APPS, strict=True):
            counted = world.cluster.count(question)
            on_nodes = [p.spec.node_name for p in placed if p.metadata.labels["app"] == app]
            assert counted.per_node == Counter(on_nodes)
            zones = Counter(known[n].metadata.labels[ZONE] for n in on_nodes)
            assert counted.domains(ZONE, world.cluster.nodes) == zones
        for name in known:
            mine = [p for p in placed if p.spec.node_name == name]
            assert world.cluster.nodes[name].cpu == sum(map(cpu_of, mine)) * 1000
            assert len(world.cluster.nodes[name].pods) == len(mine)
        anti = Counter((str(labels), key) for p in placed for labels, key in wants(p, "pod_anti_affinity"))
        kept: Counter[tuple[str, str]] = Counter()
        for terms_, counts in world.cluster.existing_affinity.required_anti.items():
            for term, _ in terms_.terms:
                labels = {r.key: next(iter(r.values)) for r in term.selector.requirements}
                kept[str(labels), term.key] += sum(counts.per_node.values())
        assert kept == anti


@pytest.mark.parametrize("priority", [1, 5])
def test_room_is_kept_for_a_nominated_pod_from_those_that_are_no_more_important(priority: int) -> None:
    world = World(node("n1", cpu="1"))
    world.cluster.nominations.add(PodInfo(pod("waits", "1", priority=3)), "n1")
    late = PodInfo(pod("late", "1", priority=priority))
    if priority > 3:
        assert world.algorithm.place(late) == "n1"
    else:
        with pytest.raises(Unschedulable):
            world.algorithm.place(late)


def test_a_nominated_pods_anti_affinity_counts_already() -> None:
    world = World(node("n1", zone="a"), node("n2", zone="b"))
    apart = affinity(required=[near({"app": "x"}, HOST)], anti=True)
    world.cluster.nominations.add(PodInfo(pod("waits", priority=3, affinity=apart)), "n1")
    assert world.place(pod("p", labels={"app": "x"})) == "n2"
    assert not world.cluster.existing_affinity.required_anti  # and looking has left nothing behind
