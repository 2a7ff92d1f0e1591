"""A spread constraint with a selector of tens of thousands of terms, and pods with as many labels, are compared in steps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from control.controllers.step_counter import STEPS_PER_ITERATION
from control.scheduler.cluster import Cluster
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.pod_counts import MOST_INDEXES
from control.scheduler.pod_index import COMPARED_AT_ONCE, LARGE
from control.scheduler.podinfo import PodInfo
from control.scheduler.unfinished import Unfinished
from kube.api import core_v1, meta_v1
from kube.label_rules import Rules

ZONE = "topology.kubernetes.io/zone"
LABELS = {f"k{number}": "" for number in range(4000)}
PODS = 3


def pod(name: str, labels: Mapping[str, str], node: str = "", terms: Mapping[str, str] | None = None) -> core_v1.Pod:
    made = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", uid=name, labels=dict(labels)),
        spec=core_v1.PodSpec(node_name=node, containers=[core_v1.Container(name="c")]),
    )
    if terms is not None:
        made.spec.topology_spread_constraints = [
            core_v1.TopologySpreadConstraint(
                max_skew=1,
                topology_key=ZONE,
                when_unsatisfiable="DoNotSchedule",
                label_selector=meta_v1.LabelSelector(match_labels=dict(terms)),
            )
        ]
    return made


def world() -> Cluster:
    """Return two zones, in the first of which pods have all the labels, and one in the second that lacks one of them."""
    cluster = Cluster()
    for name in "ab":
        cluster.set_node(core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, labels={ZONE: name})))
    for number in range(PODS):
        cluster.set_pod(pod(f"p{number}", LABELS, "a"))
    cluster.set_pod(pod("other", {**LABELS, "k1": "z"}, "b"))
    return cluster


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of whole comparisons on the event loop."""
    found, match, here = list[int](), Rules.match, threading.get_ident()

    def counted(rules: Rules, labels: Mapping[str, str]) -> bool:
        if threading.get_ident() == here:
            found.append(rules.cost(labels))
        return match(rules, labels)

    monkeypatch.setattr(Rules, "match", counted)
    return found


def places(check: Any, cluster: Cluster) -> list[str]:
    return [name for name, node in cluster.nodes.items() if check.filter(node) is None]


async def test_a_large_selector_is_compared_with_large_pods_before_they_are_counted(compared: list[int]) -> None:
    cluster, plugin, incoming = world(), PodTopologySpread(lambda _: None), PodInfo(pod("incoming", {}, terms=LABELS))
    with pytest.raises(Unfinished) as unfinished:
        plugin.pre_filter(incoming, cluster)
    gone = pod("p2", LABELS, "a")
    await asyncio.gather(unfinished.value.go_on(), asyncio.sleep(0))
    assert max(compared, default=0) <= STEPS_PER_ITERATION
    cluster.remove_pod("default/p2")
    cluster.set_pod(pod("small", {"app": "web"}, "b"))  # came meanwhile
    assert places(plugin.pre_filter(incoming, cluster), cluster) == ["b"]
    cluster.set_pod(gone)
    with pytest.raises(Unfinished) as unfinished:  # one large pod, too, is compared in steps
        plugin.pre_filter(incoming, cluster)
    await unfinished.value.go_on()
    assert max(compared, default=0) <= STEPS_PER_ITERATION
    assert places(plugin.pre_filter(incoming, cluster), cluster) == ["b"], "it stays counted"
    assert cluster.count(incoming.spreads.hard[0].pod_selection("default"), incoming).per_node == {"a": 3}


async def test_small_selectors_are_counted_at_once_and_few_indexes_of_large_ones_are_kept() -> None:
    cluster, plugin = world(), PodTopologySpread(lambda _: None)
    few = dict(list(LABELS.items())[:COMPARED_AT_ONCE])
    assert places(plugin.pre_filter(PodInfo(pod("incoming", {}, terms=few)), cluster), cluster) == ["b"]
    for number in range(MOST_INDEXES // LARGE + 2):
        with pytest.raises(Unfinished) as unfinished:
            plugin.pre_filter(PodInfo(pod("incoming", {}, terms={**LABELS, "n": str(number)})), cluster)
        await unfinished.value.go_on()
    assert len(cluster._indexes._indexes) == MOST_INDEXES // LARGE
