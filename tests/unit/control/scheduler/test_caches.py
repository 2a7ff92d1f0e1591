"""Caches of the scheduler hold little of pods that are gone, however large those were."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from kube.api import core_v1, meta_v1
from kube.bounded_cache import forget_all
from tests.support.scheduling import Bench

from .clusters import HOST, node, pod, spread

PODS, VALUES = 5, 2000


def held(value: Any) -> int:
    """Return the characters and bytes of all texts in a cache."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(held(key) + held(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(held, value))
    names = getattr(type(value), "__slots__", ())
    return sum(held(getattr(value, name)) for name in names if isinstance(name, str))


def large_pod(number: int) -> core_v1.Pod:
    values = [f"{number}-{i:05d}{'x' * 48}" for i in range(VALUES)]
    away = core_v1.NodeSelectorRequirement(key="x", operator="NotIn", values=values)
    chosen = core_v1.NodeSelector(node_selector_terms=[core_v1.NodeSelectorTerm(match_expressions=[away])])
    found = pod(
        f"p{number}",
        labels={"app": "a"},
        affinity=core_v1.Affinity(
            node_affinity=core_v1.NodeAffinity(required_during_scheduling_ignored_during_execution=chosen)
        ),
        tolerations=[core_v1.Toleration(key=f"{number}-{i}-{'y' * 48}", operator="Exists") for i in range(VALUES)],
        topology_spread_constraints=[spread(HOST, 1000, node_taints_policy="Honor")],
    )
    found.spec.topology_spread_constraints += [
        spread(f"{number}-{i}-{'z' * 48}", when="ScheduleAnyway") for i in range(100)
    ]
    return found


def world() -> Bench:
    bench = Bench()
    bench.put(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="default")), node("n0"), node("n1"))
    return bench


def come_and_go(bench: Bench, number: int) -> None:
    made = large_pod(number)
    bench.put(made)
    assert [type(each).__name__ for each in bench.schedule()] == ["Placed"]
    bench.scheduler.cluster.forget(f"default/p{number}", f"uid-p{number}")
    bench.remove(made)


def caches(bench: Bench) -> tuple[dict[Any, Any], dict[Any, Any]]:
    algorithm = bench.scheduler._served["default-scheduler"].algorithm
    (spreading,) = (u.plugin for u in algorithm.profile.cluster if isinstance(u.plugin, PodTopologySpread))
    return algorithm._results, spreading._eligible


def test_results_and_eligible_nodes_are_cached_by_digests_of_pod_specs() -> None:
    bench = world()
    for number in range(PODS):
        come_and_go(bench, number)
    results, eligible = caches(bench)
    assert (len(results), len(eligible)) == (PODS, 2 * PODS)
    assert max(held(results), held(eligible)) < PODS * 1024
    forget_all()
    assert (len(results), len(eligible)) == (0, 0)


def test_the_registry_of_caches_does_not_keep_a_scheduler() -> None:
    bench = world()
    gone = weakref.ref(bench.scheduler._served["default-scheduler"].algorithm)
    del bench
    gc.collect()
    assert gone() is None
