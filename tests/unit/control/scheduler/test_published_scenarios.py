"""The scenarios of the documentation's scheduling pages: the same cluster and manifest, the documented placement."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from control.scheduler.budgets import budgets_of
from control.scheduler.configuration import parse
from control.scheduler.framework import Unschedulable
from control.scheduler.podinfo import PodInfo
from kube import serialize
from kube.api import core_v1

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def manifest(name: str, spec: str, **labels: str) -> core_v1.Pod:
    """A pod as the documentation writes it."""
    found = {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}}
    found["spec"] = {"containers": [{"name": name, "image": "registry.k8s.io/pause:3.8"}], **yaml.safe_load(spec)}
    return serialize.convert(found, core_v1.Pod)


def on(world: World, where: str, number: int, **labels: str) -> None:
    for index in range(number):
        world.put(pod(f"{where}-{index}-{'-'.join(labels.values())}", labels=labels), where)


# -- Assigning Pods to Nodes ------------------------------------------------------------------------------------------
def test_node_selector_takes_the_pod_to_the_node_with_the_label() -> None:
    world = World(node("worker0", labels={"disktype": "ssd"}), node("worker1"), node("worker2"))
    assert world.place(manifest("nginx", "nodeSelector: {disktype: ssd}")) == "worker0"


NODE_AFFINITY = """
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: topology.kubernetes.io/zone, operator: In, values: [antarctica-east1, antarctica-west1]}
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 1
      preference:
        matchExpressions:
        - {key: another-node-label-key, operator: In, values: [another-node-label-value]}
"""


def test_required_node_affinity_limits_and_preferred_chooses() -> None:
    liked = {"another-node-label-key": "another-node-label-value"}
    elsewhere = node("elsewhere", zone="arctic", labels=liked)
    east, west = node("east", zone="antarctica-east1"), node("west", zone="antarctica-west1", labels=liked)
    assert World(east, elsewhere).place(manifest("with-node-affinity", NODE_AFFINITY)) == "east"
    assert World(east, west, elsewhere).place(manifest("with-node-affinity", NODE_AFFINITY)) == "west"


WEIGHTS = """
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 1, preference: {matchExpressions: [{key: label-1, operator: In, values: [key-1]}]}}
    - {weight: 50, preference: {matchExpressions: [{key: label-2, operator: In, values: [key-2]}]}}
"""


def test_the_node_whose_preference_weighs_more_is_taken() -> None:
    linux = {"kubernetes.io/os": "linux"}
    one = node("one", labels={**linux, "label-1": "key-1"})
    two = node("two", labels={**linux, "label-2": "key-2"})
    assert World(one, two).place(manifest("with-affinity-preferred-weight", WEIGHTS)) == "two"


POD_AFFINITY = """
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - labelSelector: {matchExpressions: [{key: security, operator: In, values: [S1]}]}
      topologyKey: topology.kubernetes.io/zone
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        labelSelector: {matchExpressions: [{key: security, operator: In, values: [S2]}]}
        topologyKey: topology.kubernetes.io/zone
"""


def test_a_pod_goes_to_the_zone_of_its_friends_and_rather_not_to_that_of_others() -> None:
    world = World(node("v1", zone="V"), node("w1", zone="W"), node("x1", zone="X"))
    on(world, "v1", 1, security="S1")
    on(world, "w1", 1, security="S1")
    on(world, "w1", 1, security="S2")
    assert world.place(manifest("with-pod-affinity", POD_AFFINITY)) == "v1"


def test_web_servers_are_colocated_with_caches_one_of_each_on_every_node() -> None:
    world = World(*(node(f"node-{number}") for number in range(3)))
    apart = affinity(required=[near({"app": "store"}, HOST)], anti=True)
    stores = [pod(f"redis-{n}", "100m", labels={"app": "store"}, affinity=apart) for n in range(3)]
    assert {world.place(incoming) for incoming in stores} == {"node-0", "node-1", "node-2"}
    both = core_v1.Affinity(
        pod_affinity=affinity(required=[near({"app": "store"}, HOST)]).pod_affinity,
        pod_anti_affinity=affinity(required=[near({"app": "web-store"}, HOST)], anti=True).pod_anti_affinity,
    )
    webs = [pod(f"web-{n}", "100m", labels={"app": "web-store"}, affinity=both) for n in range(3)]
    assert {world.place(incoming) for incoming in webs} == {"node-0", "node-1", "node-2"}
    assert world.refusal(pod("web-3", labels={"app": "web-store"}, affinity=both)) == (
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."
    )


# -- Taints and Tolerations -------------------------------------------------------------------------------------------
TOLERATIONS = """
tolerations:
- {key: key1, operator: Equal, value: value1, effect: NoSchedule}
- {key: key1, operator: Equal, value: value1, effect: NoExecute}
"""


def test_one_taint_without_its_toleration_keeps_the_pod_away() -> None:
    taints = [
        core_v1.Taint(key="key1", value="value1", effect="NoSchedule"),
        core_v1.Taint(key="key1", value="value1", effect="NoExecute"),
        core_v1.Taint(key="key2", value="value2", effect="NoSchedule"),
    ]
    incoming = manifest("nginx", TOLERATIONS)
    assert World(node("node1", taints=taints)).refusal(incoming) == (
        "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    )
    assert World(node("node1", taints=taints[:2])).place(incoming) == "node1"


# -- Pod Topology Spread Constraints ----------------------------------------------------------------------------------
def four_nodes() -> World:
    """Two zones of two nodes; three pods foo=bar on node1, node2 and node3."""
    world = World(*(node(f"node{n}", zone="zoneA" if n < 3 else "zoneB") for n in (1, 2, 3, 4)))
    for number in (1, 2, 3):
        on(world, f"node{number}", 1, foo="bar")
    return world


BY_ZONE, BY_NODE = spread(ZONE, 1, {"foo": "bar"}), spread(HOST, 1, {"foo": "bar"})


def mypod(*constraints: Any, **spec: Any) -> core_v1.Pod:
    return pod("mypod", labels={"foo": "bar"}, topology_spread_constraints=list(constraints), **spec)


def test_one_constraint_sends_the_pod_to_the_zone_with_fewer() -> None:
    assert four_nodes().place(mypod(BY_ZONE)) in ("node3", "node4")


def test_two_constraints_leave_one_node() -> None:
    assert four_nodes().place(mypod(BY_ZONE, BY_NODE)) == "node4"


def test_constraints_that_conflict_keep_the_pod_pending() -> None:
    world = World(node("node1", zone="zoneA"), node("node2", zone="zoneA"), node("node3", zone="zoneB"))
    for where, number in (("node1", 2), ("node2", 1), ("node3", 2)):
        on(world, where, number, foo="bar")
    assert world.refusal(mypod(BY_ZONE, BY_NODE)) == (
        "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints."
    )
    softer = spread(HOST, 1, {"foo": "bar"}, when="ScheduleAnyway")
    assert world.place(mypod(BY_ZONE, softer)) == "node3"


@pytest.mark.parametrize(("policy", "pending"), [("Honor", False), ("Ignore", True)])
def test_zones_that_node_affinity_excludes_do_not_count_by_default(policy: str, pending: bool) -> None:
    world = four_nodes()
    world.cluster.set_node(node("node5", zone="zoneC"))
    away = """
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: topology.kubernetes.io/zone, operator: NotIn, values: [zoneC]}]
"""
    incoming = manifest("mypod", away, foo="bar")
    incoming.spec.topology_spread_constraints = [spread(ZONE, 1, {"foo": "bar"}, node_affinity_policy=policy)]
    if pending:  # zoneC is empty and counts, so that one more anywhere would be too many
        assert "didn't match pod topology spread constraints" in world.refusal(incoming)
    else:
        assert world.place(incoming) in ("node3", "node4")


@pytest.mark.parametrize(("policy", "pending"), [("Ignore", True), ("Honor", False)])
def test_tainted_nodes_count_as_empty_domains_by_default(policy: str, pending: bool) -> None:
    world = four_nodes()
    world.cluster.set_node(node("node5", zone="zoneC", taints=[core_v1.Taint(key="dedicated", effect="NoSchedule")]))
    incoming = mypod(spread(ZONE, 1, {"foo": "bar"}, node_taints_policy=policy))
    if pending:
        assert "didn't match pod topology spread constraints" in world.refusal(incoming)
    else:
        assert world.place(incoming) in ("node3", "node4")


# -- Pod Priority and Preemption --------------------------------------------------------------------------------------
def victims(world: World, incoming: core_v1.Pod) -> list[str]:
    info = PodInfo(incoming)
    with pytest.raises(Unschedulable) as refusal:
        world.algorithm.place(info)
    found = world.victims(info, refusal.value.diagnosis, budgets_of())
    return [victim.pod.metadata.name or "" for victim in found.pods] if found else []


@pytest.mark.parametrize(("friends_priority", "gone"), [(1, []), (10, ["other"])])
def test_a_node_whose_less_important_pods_the_preemptor_wants_to_be_near_is_left(
    friends_priority: int, gone: list[str]
) -> None:
    world = World(node("n", cpu="2"))
    world.put(pod("friend", "1", priority=friends_priority, labels={"app": "f"}), "n")
    world.put(pod("other", "1", priority=1), "n")
    incoming = pod("p", "1", priority=10, affinity=affinity(required=[near({"app": "f"}, HOST)]))
    assert victims(world, incoming) == gone


def test_no_pod_of_another_node_is_evicted_for_anti_affinity_across_the_zone() -> None:
    world = World(node("n", cpu="1", zone="z"), node("m", cpu="1", zone="z", unschedulable=True))
    world.put(pod("there", "1", priority=1, labels={"app": "q"}), "m")
    incoming = pod("p", "1", priority=10, affinity=affinity(required=[near({"app": "q"})], anti=True))
    assert victims(world, incoming) == []


# -- Resource Bin Packing ---------------------------------------------------------------------------------------------
BIN_PACKING = (
    HEAD
    + """
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        resources:
        - {name: intel.com/foo, weight: 5}
        - {name: memory, weight: 1}
        - {name: cpu, weight: 3}
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
        type: RequestedToCapacityRatio
"""
)


def test_the_fuller_node_is_taken_as_the_worked_example_reckons() -> None:
    one = node("node1", cpu="8", memory="1Gi", extended={"intel.com/foo": "4"})
    two = node("node2", cpu="8", memory="1Gi", extended={"intel.com/foo": "8"})
    world = World(one, two, profile=parse(BIN_PACKING).profiles[0])
    world.put(pod("a", "1", "256Mi", requests={"intel.com/foo": "1"}), "node1")
    world.put(pod("b", "6", "512Mi", requests={"intel.com/foo": "2"}), "node2")
    incoming = PodInfo(pod("p", "2", "256Mi", requests={"intel.com/foo": "2"}))
    fit = next(plugin for plugin, _ in world.profile.scores if plugin.name == "NodeResourcesFit")
    # The page counts to 10, with whole points for each resource: 5 and 7.
    assert [fit.score(incoming, world.cluster.nodes[name]) for name in ("node1", "node2")] == [60, 69]
    assert world.algorithm.place(incoming) == "node2"
