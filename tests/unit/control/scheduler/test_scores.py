"""Scores of plugins, with the numbers of upstream's own tables where it has some."""

from __future__ import annotations

from typing import Any

import pytest

from control.scheduler.configuration import ProfileConfig
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1

from .clusters import HOST, ZONE, World, affinity, near, node, pod, spread

MIB = 1024 * 1024


def scored(world: World, plugin: str, incoming: core_v1.Pod) -> list[int]:
    """Return the plugin's points for each node, normalized where it normalizes."""
    info, found = PodInfo(incoming), world.cluster.order
    for use in world.profile.cluster:
        if use.plugin.name == plugin:
            check = use.plugin.pre_filter(info, world.cluster)
            return (check.score(found) if check is not None else None) or [0] * len(found)
    one = next(scorer for scorer, _ in world.profile.scores if scorer.name == plugin)
    return [one.score(info, place) for place in found]


def fit(kind: str, **more: Any) -> ProfileConfig:
    args = {"scoringStrategy": {"type": kind, **more}}
    return ProfileConfig("p", {}, {"NodeResourcesFit": args})


RISING = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}
FALLING = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]}}


@pytest.mark.parametrize(
    ("profile", "plugin", "asks", "points"),
    [
        # Two nodes, 4 000m and 6 000m of CPU, each with 10 000 bytes; nothing runs there.
        (fit("LeastAllocated"), "NodeResourcesFit", ("3", "5000"), [37, 50]),
        (fit("MostAllocated"), "NodeResourcesFit", ("3", "5000"), [62, 50]),
        (fit("RequestedToCapacityRatio", **FALLING), "NodeResourcesFit", ("3", "5000"), [38, 50]),
        (fit("RequestedToCapacityRatio", **RISING), "NodeResourcesFit", ("3", "5000"), [63, 50]),
        (None, "NodeResourcesBalancedAllocation", ("3", "5000"), [87, 100]),
        (None, "NodeResourcesBalancedAllocation", ("", ""), [100, 100]),
    ],
)
def test_resources(profile: ProfileConfig | None, plugin: str, asks: tuple[str, str], points: list[int]) -> None:
    world = World(node("a", cpu="4", memory="10000"), node("b", cpu="6", memory="10000"), profile=profile)
    assert scored(world, plugin, pod("p", *asks)) == points


def test_extended_resources_are_scored_if_the_strategy_names_them_and_the_pod_requests_them() -> None:
    named = [{"name": "example.com/gpu", "weight": 3}, {"name": "cpu", "weight": 1}]
    world = World(
        node("a", cpu="4", extended={"example.com/gpu": "4"}),
        node("b", cpu="4", extended={"example.com/gpu": "8"}),
        profile=fit("LeastAllocated", resources=named),
    )
    incoming = pod("p", "1", requests={"example.com/gpu": "2"})
    assert scored(world, "NodeResourcesFit", incoming) == [(50 * 3 + 75) // 4, (75 * 3 + 75) // 4]
    assert scored(world, "NodeResourcesFit", pod("q", "1")) == [75, 75]


def test_images_count_by_size_and_by_how_many_nodes_have_them() -> None:
    world = World(node("a", images={"gcr.io/40:latest": 40 * MIB}), node("b", images={"gcr.io/250:latest": 250 * MIB}))
    incoming = pod("p", image="gcr.io/40")
    incoming.spec.containers.append(core_v1.Container(name="d", image="gcr.io/250"))
    # a: 40/2 is less than 23; b: 100 * (250/2 - 23) / (2 * 1000 - 23)
    assert scored(world, "ImageLocality", incoming) == [0, 5]
    volume = core_v1.Volume(name="v", image=core_v1.ImageVolumeSource(reference="gcr.io/250"))
    assert scored(world, "ImageLocality", pod("q", image="gcr.io/40", volumes=[volume])) == [0, 5]


def test_taints_are_counted_but_those_that_are_tolerated() -> None:
    taints = [core_v1.Taint(key=key, effect="PreferNoSchedule") for key in ("x", "y")]
    world = World(node("a", taints=taints), node("b", taints=taints[:1]), node("c"))
    assert scored(world, "TaintToleration", pod("p")) == [2, 1, 0]
    tolerant = pod("q", tolerations=[core_v1.Toleration(key="x", operator="Exists", effect="PreferNoSchedule")])
    assert scored(world, "TaintToleration", tolerant) == [1, 0, 0]
    # A toleration of another effect is no toleration of this one.
    other = pod("r", tolerations=[core_v1.Toleration(key="x", operator="Exists", effect="NoSchedule")])
    assert scored(world, "TaintToleration", other) == [2, 1, 0]


@pytest.mark.parametrize(
    ("incoming", "points"),
    [
        (pod("p", affinity=affinity(preferred=[near({"app": "s1"})])), [100, 0, 0]),
        (pod("p", affinity=affinity(preferred=[near({"app": "s1"})], anti=True)), [0, 100, 100]),
        (pod("p", affinity=affinity(preferred=[near({"app": "s1"}, HOST)])), [100, 0, 0]),
        (pod("p", affinity=affinity(preferred=[near({"app": "nobody"})])), [0, 0, 0]),
        # Terms of the existing pod count for the new one as well.
        (pod("p", labels={"app": "liked"}), [100, 0, 0]),
    ],
)
def test_wishes_of_both_sides_are_scaled_between_the_least_and_the_most(
    incoming: core_v1.Pod, points: list[int]
) -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"), node("c"))
    there = pod("there", labels={"app": "s1"}, affinity=affinity(preferred=[near({"app": "liked"})]))
    world.put(there, "a")
    assert scored(world, "InterPodAffinity", incoming) == points


def test_required_affinity_of_existing_pods_has_the_profiles_hard_pod_affinity_weight() -> None:
    for weight, points in ((1, [100, 0]), (0, [0, 0])):
        args = {"InterPodAffinity": {"hardPodAffinityWeight": weight}}
        world = World(node("a", zone="z1"), node("b", zone="z2"), profile=ProfileConfig("p", {}, args))
        world.put(pod("self", labels={"app": "x"}, affinity=affinity(required=[near({"app": "x"})])), "a")
        assert scored(world, "InterPodAffinity", pod("p", labels={"app": "x"})) == points


@pytest.mark.parametrize(
    ("there", "points"),
    [
        ((0, 0, 0), [0, 0, 0]),
        ((1, 1, 1), [100, 100, 100]),
        ((2, 0, 0), [0, 100, 100]),
        ((1, 0, 2), [33, 100, 0]),
    ],
)
def test_soft_spreading_gives_the_emptiest_most(there: tuple[int, ...], points: list[int]) -> None:
    world = World(*(node(name) for name in "abc"))
    for name, number in zip("abc", there, strict=True):
        for index in range(number):
            world.put(pod(f"{name}{index}", labels={"app": "a"}), name)
    soft = spread(HOST, 1, when="ScheduleAnyway")
    incoming = pod("p", labels={"app": "a"}, topology_spread_constraints=[soft])
    assert scored(world, "PodTopologySpread", incoming) == points


def test_nodes_without_the_label_get_nothing_from_soft_spreading() -> None:
    world = World(node("a", zone="z1"), node("b", zone="z2"), node("c"))
    world.put(pod("x", labels={"app": "a"}), "a")
    soft = spread(ZONE, 1, when="ScheduleAnyway")
    incoming = pod("p", labels={"app": "a"}, topology_spread_constraints=[soft])
    assert scored(world, "PodTopologySpread", incoming) == [0, 100, 0]
