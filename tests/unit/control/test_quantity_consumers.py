"""No consumer of quantities fails at a size that the API accepts: scheduler, quota, limits, autoscaler, agent, metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.podspec import downward
from agent.podspec.containers import ResourceRules, container_resources
from agent.podspec.sandbox import pod_resources
from agent.usage.collector import _memory_limit
from agent.volumes.empty_dir import memory_size
from control.admission import limit_ranger, quota, quota_claims
from control.controllers.autoscaling import calculate, replicas
from control.registry.core.limitrange import LimitRangeStrategy
from control.resource_metrics.objects import MetricsStrategy
from control.scheduler.configuration import ProfileConfig
from control.scheduler.decisions import Failed
from control.scheduler.devices import capacity as device_capacity
from kube import quantity
from kube.api import core_v1, resource_v1
from tests.support.scheduling import Bench
from tests.unit.control.scheduler.clusters import World, node, pod

EDGES = (
    "0 1 100m 1n 1Gi 7Ei 8Ei 99999Ei 9223372036854775807 9223372036854775808 18446744073709551616 1e400 1e1000".split()
)
QUANTITIES = st.one_of(
    st.sampled_from([*EDGES, "1e-1000", "1e-9", "9" * 990, "0." + "9" * 900]),
    st.builds("{}e{}".format, st.integers(0, 10**20), st.integers(-1000, 1000)),
    st.builds("{}{}".format, st.integers(0, 10**30), st.sampled_from(["n", "u", "m", "k", "E", "Ki", "Ei"])),
)
SIGNED = QUANTITIES.flatmap(lambda text: st.sampled_from([text, f"-{text}"]))
NAMES = ("cpu", "memory", "ephemeral-storage", "example.com/a")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), QUANTITIES)
CURVE = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
WEIGHED = [{"name": name, "weight": 3} for name in NAMES]
STRATEGIES = [
    {"type": "LeastAllocated", "resources": WEIGHED},
    {"type": "MostAllocated", "resources": WEIGHED},
    {"type": "RequestedToCapacityRatio", "resources": WEIGHED, "requestedToCapacityRatio": CURVE},
]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asking(name: str, requests: dict[str, str], limits: dict[str, str], overhead: dict[str, str] | None = None) -> Any:
    """Return a pod of two containers and an init container, each with these resources."""
    found = pod(name)
    resources = core_v1.ResourceRequirements(requests=dict(requests), limits=dict(limits))
    found.spec.containers = [core_v1.Container(name=c, image="i", resources=resources) for c in ("c", "d", "e")]
    found.spec.init_containers = [core_v1.Container(name="f", image="i", resources=resources)]
    found.spec.overhead = dict(overhead or {})
    return found


def _strategy(kind: Any) -> Any:
    return kind(None)


def test_a_bound_pod_with_more_than_64_bits_of_memory_stops_no_other_pod() -> None:
    bench = Bench()
    bench.put(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        there = pod(f"there-{name}", memory="1e1000")
        there.spec.node_name = name
        bench.put(there)
    bench.put(pod("p", "1"))
    (decision,) = bench.schedule()
    assert not isinstance(decision, Failed)


@settings(max_examples=60)
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
def test_the_scheduler_decides(
    strategy: dict[str, Any] | None, there: Any, asked: Any, allocatable: Any, overhead: Any
) -> None:
    args: dict[str, Any] = {}
    if strategy is not None:
        balanced = {"resources": [{"name": name} for name in NAMES]}
        args = {"NodeResourcesFit": {"scoringStrategy": strategy}, "NodeResourcesBalancedAllocation": balanced}
    world = World(node("n1", extended=allocatable), node("n2"), profile=ProfileConfig("p", {}, args))
    for name in ("n1", "n2"):
        world.put(asking(f"there-{name}", there, {}, overhead), name)
    for wish in (asking("wish", asked, {}), pod("one", "1"), pod("two", "1m", "1"), pod("three", requests=asked)):
        try:
            world.place(wish)
        except Exception as error:
            assert type(error).__name__ == "Unschedulable", error


@example({}, {"cpu": "50000000000000000e1000"}, {}, {})
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_quota_and_limits_are_computed(requests: Any, limits: Any, hard: Any, least: Any) -> None:
    obj: dict[str, Any] = {
        "metadata": {},
        "spec": {"containers": [{"name": c, "resources": {"requests": requests, "limits": limits}} for c in "ab"]},
    }
    usage = quota.usage("pods", obj)
    left = quota.render(quota.subtract(usage, quota.parse(hard, hard)))
    quota.parse(left, left)
    assert quota.show(usage)
    for kind in ("Container", "Pod"):
        item = {"type": kind, "min": least, "max": hard, "maxLimitRequestRatio": limits, "default": hard}
        list(limit_ranger.pod_problems(obj, {"spec": {"limits": [item]}}))
        _strategy(LimitRangeStrategy).validate({"metadata": {"name": "r"}, "spec": {"limits": [item]}})
    claim = {"spec": {"resources": {"requests": {"storage": requests.get("memory", "1")}}}}
    quota.render(quota_claims.volume_usage(claim))


@given(SIGNED, SIGNED, QUANTITIES)
def test_the_autoscaler_computes_replicas(metric: str, request: str, target: str) -> None:
    pods = [asking(name, {"memory": request}, {}) for name in ("a", "b")]
    for found in pods:
        found.status.phase = "Running"
    values = {p.metadata.name: replicas.PodMetric(quantity.milli(metric), NOW, 60) for p in pods}
    common = pods, values, "memory", replicas.Tolerances(0.1, 0.1), replicas.Startup(60, 60), NOW
    requests = replicas.requests_of(pods, "memory")
    try:
        proposal = replicas.by_utilization(2, 80, *common)
        calculate._amount(proposal.usage)
    except replicas.MetricsError:
        assert not sum(requests.values())
    proposal = replicas.by_value(2, quantity.milli(target) or 1, *common)
    calculate._amount(proposal.usage)
    replicas.by_share(2, 2 * quantity.milli(metric), quantity.milli(target) or 1, common[3])
    replicas.by_total(2, 2 * quantity.milli(metric), quantity.milli(target) or 1, pods, common[3])


@given(AMOUNTS, AMOUNTS, AMOUNTS, QUANTITIES)
def test_the_agent_computes_limits_that_the_runtime_takes(requests: Any, limits: Any, overhead: Any, size: str) -> None:
    found = asking("p", requests, limits, overhead)
    rules = ResourceRules(2**33, 2**30, "LimitedSwap", cgroup_v2=True, swap_controller=True)
    for container in found.spec.containers:
        container_resources(found, container, rules, static=False).SerializeToString()
    pod_resources(found, cfs_quota=True, period_us=100_000).SerializeToString()
    assert float(_memory_limit(found, "c")) >= 0
    assert memory_size(core_v1.EmptyDirVolumeSource(medium="Memory", size_limit=size), found, 2**33) <= 2**33
    for resource in ("limits.memory", "requests.memory", "limits.cpu", "requests.cpu"):
        for divisor in (None, "1", "1m", "1Gi"):
            selector = core_v1.ResourceFieldSelector(resource=resource, divisor=divisor)
            assert len(downward.resource(found, selector, {"cpu": size}, found.spec.containers[0])) < 24


@given(QUANTITIES, QUANTITIES)
def test_metrics_are_shown(first: str, second: str) -> None:
    containers = [{"usage": {"cpu": first, "memory": second}}, {"usage": {"cpu": second, "memory": first}}]
    row = _strategy(MetricsStrategy).row({"metadata": {"name": "p"}, "containers": containers, "window": "1s"}, NOW)
    assert all(isinstance(quantity.parse(cell), Decimal) for cell in row[1:3])


@given(QUANTITIES, QUANTITIES, QUANTITIES, QUANTITIES)
def test_capacity_of_devices_is_rounded(wish: str, whole: str, least: str, step: str) -> None:
    policy = resource_v1.CapacityRequestPolicy(
        default="1", valid_range=resource_v1.CapacityRequestPolicyRange(min=least, step=step)
    )
    device_capacity._rounded(quantity.parse(wish), quantity.parse(whole), policy)
