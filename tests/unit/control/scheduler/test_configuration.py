"""KubeSchedulerConfiguration: parsed fields, errors, and the resulting profiles."""

from __future__ import annotations

import re

import pytest

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ConfigurationError, PluginSet, ProfileConfig, SchedulerConfig, parse
from control.scheduler.framework import Profile
from control.scheduler.podinfo import PodInfo
from control.scheduler.profile import PluginContext, build
from kube.api import core_v1

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def profile(points: dict[str, PluginSet] | None = None, **args: dict[str, object]) -> ProfileConfig:
    return ProfileConfig("p", points or {}, args)


def made(config: ProfileConfig, **more: object) -> Profile:
    return build(config, PluginContext(Cluster(), **more))  # type: ignore[arg-type]


def scores(config: ProfileConfig) -> dict[str, int]:
    found = made(config)
    weights = {plugin.name: weight for plugin, weight in found.scores}
    return weights | {use.plugin.name: use.weight for use in found.cluster}


# -- the file ---------------------------------------------------------------------------------------------------------
def test_a_file_with_nothing_but_its_kind_is_the_default() -> None:
    assert parse(HEAD) == SchedulerConfig()


def test_everything_is_read() -> None:
    found = parse(
        HEAD
        + """
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- schedulerName: packer
  percentageOfNodesToScore: 70
  plugins:
    score: {disabled: [{name: ImageLocality}], enabled: [{name: NodeAffinity, weight: 7}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
- {}
extenders:
- urlPrefix: http://127.0.0.1:1/x/
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 5
  httpTimeout: 100ms
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
"""
    )
    assert (found.percentage, found.first_backoff, found.last_backoff) == (30, 2.0, 20.0)
    packer, usual = found.profiles
    assert (packer.name, packer.percentage, usual.name) == ("packer", 70, "default-scheduler")
    assert packer.points["score"] == PluginSet((("NodeAffinity", 7),), frozenset({"ImageLocality"}))
    extender = found.extenders[0]
    assert (extender.url, extender.timeout, extender.weight) == ("http://127.0.0.1:1/x", 0.1, 5)
    assert extender.managed == extender.ignored == {"example.com/gpu"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Other", "is not a"),
        (HEAD + "profiles: [{schedulerName: a}, {schedulerName: a}]", "unique"),
        (HEAD + "percentageOfNodesToScore: 101", "not in valid range"),
        (HEAD + "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 1", "podMaxBackoffSeconds"),
        (HEAD + "profiles: [{plugins: {sometimes: {}}}]", "unknown extension point"),
        (HEAD + "profiles: [{pluginConfig: [{name: A}, {name: A}]}]", "repeated config for plugin A"),
        (HEAD + "extenders: [{filterVerb: f}]", "urlPrefix"),
        (HEAD + "extenders: [{urlPrefix: a, bindVerb: b}, {urlPrefix: c, bindVerb: b}]", "only one extender"),
        (HEAD + "extenders: [{urlPrefix: a, prioritizeVerb: p, weight: -1}]", "positive weight"),
        (HEAD + "extenders: [{urlPrefix: a, httpTimeout: soon}]", "invalid duration"),
        ("[", "parsing"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse(text)


# -- profiles ---------------------------------------------------------------------------------------------------------
def test_the_default_profile_has_upstreams_weights() -> None:
    assert scores(profile()) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
    }


def test_plugins_are_switched_at_one_point_or_at_all() -> None:
    at_score = profile({"score": PluginSet(disabled=frozenset({"TaintToleration", "PodTopologySpread"}))})
    found = made(at_score)
    assert "TaintToleration" in [f.name for f in found.filters]
    assert [(u.filters, u.weight) for u in found.cluster if u.plugin.name == "PodTopologySpread"] == [(True, 0)]
    everywhere = made(profile({"multiPoint": PluginSet(disabled=frozenset({"TaintToleration"}))}))
    assert "TaintToleration" not in [f.name for f in everywhere.filters] + [s.name for s, _ in everywhere.scores]


def test_a_star_leaves_only_what_is_named() -> None:
    only = profile({"score": PluginSet((("ImageLocality", 9),), frozenset({"*"}))})
    assert {name: weight for name, weight in scores(only).items() if weight} == {"ImageLocality": 9}
    nothing = made(profile({"multiPoint": PluginSet((("NodeName", 0),), frozenset({"*"}))}))
    assert [f.name for f in nothing.filters] == ["NodeName"] and not nothing.scores and not nothing.preempts


def test_a_weight_at_the_point_comes_before_one_from_everywhere() -> None:
    found = scores(profile({"multiPoint": PluginSet((("NodeAffinity", 5), ("ImageLocality", 4)))}))
    assert (found["NodeAffinity"], found["ImageLocality"]) == (5, 4)
    both = {"multiPoint": PluginSet((("NodeAffinity", 5),)), "score": PluginSet((("NodeAffinity", 6),))}
    assert scores(profile(both))["NodeAffinity"] == 6


def test_plugins_that_do_not_exist_or_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        made(profile({"filter": PluginSet((("Nonsense", 0),))}))
    with pytest.raises(ConfigurationError, match="does not extend score"):
        made(profile({"score": PluginSet((("NodeName", 0),))}))
    with pytest.raises(ConfigurationError, match="NodeResourcesFit"):
        made(profile(NodeResourcesFit={"scoringStrategy": {"type": "Nonsense"}}))


def test_a_plugin_from_elsewhere_takes_part_where_it_has_methods() -> None:
    class Picky:
        name, weight = "Picky", 0

        def __init__(self, args: object) -> None:
            self.refused = dict(args)["refused"]  # type: ignore[call-overload]

        def filter(self, pod, node):  # type: ignore[no-untyped-def]
            from control.scheduler.framework import Rejection

            return Rejection("Picky", ("node(s) were not picked",)) if node.name == self.refused else None

        async def permit(self, pod, node) -> None:  # type: ignore[no-untyped-def]
            return None

    config = profile({"multiPoint": PluginSet((("Picky", 0),))}, Picky={"refused": "a"})
    world = World(node("a"), node("b"), profile=config, extra={"Picky": Picky})
    assert {world.place(pod(f"p{n}")) for n in range(4)} == {"b"}
    assert [plugin.name for plugin in world.profile.permit] == ["Picky"]


# -- arguments --------------------------------------------------------------------------------------------------------
def test_pods_are_packed_with_most_allocated() -> None:
    packing = profile(NodeResourcesFit={"scoringStrategy": {"type": "MostAllocated"}})
    world = World(node("a"), node("b"), profile=packing)
    world.put(pod("there", "1", "1Gi"), "b")
    assert {world.place(pod(f"p{n}", "500m", "1Gi")) for n in range(3)} == {"b"}
    spreading = World(node("a"), node("b"))
    spreading.put(pod("there", "1", "1Gi"), "b")
    assert spreading.place(pod("p", "500m", "1Gi")) == "a"


def test_a_ratio_of_an_extended_resource_packs_by_its_curve() -> None:
    gpu = "example.com/gpu"
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    wanted = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": gpu, "weight": 3}],
        "requestedToCapacityRatio": {"shape": shape},
    }
    config = profile(NodeResourcesFit={"scoringStrategy": wanted})
    world = World(node("a", extended={gpu: "4"}), node("b", extended={gpu: "4"}), profile=config)
    world.put(pod("there", requests={gpu: "2"}), "b")
    assert world.place(pod("p", requests={gpu: "1"})) == "b"


@pytest.mark.parametrize(("used", "points"), [(0, 0), (25, 25), (50, 50), (75, 25), (100, 0), (150, 0)])
def test_a_curve_is_straight_between_its_points(used: int, points: int) -> None:
    from control.scheduler.plugins.node_resources_fit import ratio

    assert ratio([(0, 0), (50, 5), (100, 0)])(used, 100) == points


def test_resources_can_be_left_out() -> None:
    world = World(node("a"), profile=profile(NodeResourcesFit={"ignoredResources": ["example.com/x"]}))
    assert world.place(pod("p", requests={"example.com/x": "1"})) == "a"
    group = World(node("a"), profile=profile(NodeResourcesFit={"ignoredResourceGroups": ["example.com"]}))
    assert group.place(pod("p", requests={"example.com/y": "1"})) == "a"
    assert "Insufficient example.com/x" in World(node("a")).refusal(pod("p", requests={"example.com/x": "1"}))


def test_added_affinity_holds_for_all_pods_of_the_profile() -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    config = profile(NodeAffinity={"addedAffinity": required})
    world = World(node("n1", zone="a"), node("n2", zone="b"), profile=config)
    assert world.place(pod("p")) == "n2"
    alone = World(node("n1", zone="a"), profile=config)
    assert "1 node(s) didn't match scheduler-enforced node affinity" in alone.refusal(pod("p"))


def test_the_weight_of_required_affinity_of_pods_that_are_there() -> None:
    def place(weight: int) -> str:
        world = World(node("a"), node("b"), profile=profile(InterPodAffinity={"hardPodAffinityWeight": weight}))
        world.put(pod("there", labels={"app": "x"}, affinity=affinity([near({"app": "x"}, HOST)])), "b")
        return world.place(pod("p", labels={"app": "x"}))

    assert place(100) == "b"
    assert place(0) == "a"


def test_constraints_of_the_profile_hold_for_pods_without_their_own() -> None:
    from kube.selectors import from_map

    defaults = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    config = profile(PodTopologySpread={"defaultingType": "List", "defaultConstraints": defaults})
    kin = from_map({"app": "a"})
    world = World(node("n1", zone="a"), node("n2", zone="b", cpu="100m"), kin=lambda p: kin, profile=config)
    world.put(pod("there", labels={"app": "a"}), "n1")
    refused = world.refusal(pod("p", "500m", labels={"app": "a"}))
    assert "1 node(s) didn't match pod topology spread constraints" in refused
    own = pod("q", "500m", labels={"app": "a"}, topology_spread_constraints=[spread(ZONE, 2)])
    assert world.place(own) == "n1"


@pytest.mark.parametrize(("nodes", "enough"), [(50, 50), (100, 100), (400, 188), (1000, 420), (5000, 500)])
def test_of_many_nodes_a_share_is_looked_for(nodes: int, enough: int) -> None:
    world = World(*(node(f"n{number}") for number in range(nodes)))
    assert len(world.algorithm.feasible(PodInfo(pod("p"))).nodes) == enough


def test_a_share_of_the_nodes_is_enough() -> None:
    nodes = [node(f"n{number}") for number in range(400)]
    half = ProfileConfig("p", {}, {}, 50)
    assert len(World(*nodes, profile=half).algorithm.feasible(PodInfo(pod("p"))).nodes) == 200


def test_gates_keep_a_pod_out() -> None:
    gated = pod("p", scheduling_gates=[core_v1.PodSchedulingGate(name="g")])
    assert [bool(plugin.pre_enqueue(gated)) for plugin in made(profile()).pre_enqueue] == [True]
    ungated = made(profile({"preEnqueue": PluginSet(disabled=frozenset({"SchedulingGates"}))}))
    assert ungated.pre_enqueue == ()


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({}, (10, 100)),
        ({"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 1}, (50, 1)),
        ({"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage: not in valid range [0, 100]"),
        ({"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute: not in valid range [0, inf)"),
        ({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}, "cannot both be zero"),
    ],
)
def test_preemption_searches_the_configured_number_of_nodes(args: dict[str, int], found: object) -> None:
    config = ProfileConfig("p", {}, {"DefaultPreemption": args})
    if isinstance(found, str):
        with pytest.raises(ConfigurationError, match=re.escape(found)):
            World(profile=config)
    else:
        assert World(profile=config).profile.candidates == found
