"""The rules of writes that depend on the request: quotas, evictions, deletions, and leases."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from simulation.event_loop import Scheduler
from simulation.origin import ORIGIN, Origin
from simulation.processes import Process
from tests.support.oracle_world import Object, World, changed, obj, pod, request

PODS = "/api/v1/namespaces/default/pods"
CREATE, DELETE = request("POST", PODS, at=100.0), request("DELETE", f"{PODS}/a")
EVICT = request("POST", f"{PODS}/a/eviction", at=100.0)


# -- quotas ---------------------------------------------------------------------------------------------------------------
def quota(used: int) -> Object:
    return obj("ResourceQuota", "small", status={"hard": {"pods": "1"}, "used": {"pods": str(used)}})


async def test_a_pod_that_its_request_has_charged_keeps_the_quota() -> None:
    world = World()
    await world.write(quota(0))
    await world.write(quota(1), by=CREATE)
    assert await world.write(pod("a"), by=CREATE) == []


async def test_a_charge_beyond_the_limit_and_a_pod_without_one_are_reported() -> None:
    world = World()
    await world.write(quota(1))
    assert await world.write(quota(2), by=CREATE) == ["quota"]
    other = request("POST", PODS, at=200.0)
    assert await world.write(pod("b"), by=other) == ["quota", "quota"]


async def test_a_quota_that_is_newer_than_the_request_is_not_charged() -> None:
    world = World()
    await world.clock.advance(99)
    await world.write(quota(0))
    assert await world.write(pod("a"), by=CREATE) == []


# -- evictions ------------------------------------------------------------------------------------------------------------
def budget(allowed: int, *disrupted: str, observed: int = 1) -> Object:
    status = {
        "disruptionsAllowed": allowed,
        "disruptedPods": dict.fromkeys(disrupted, "now"),
        "observedGeneration": observed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
    }
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    return obj("PodDisruptionBudget", "web", spec, status, generation=1)


def web(*, ready: bool = True, **meta: Any) -> Object:
    each = pod("a", labels={"app": "web"}, **meta)
    each["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return each


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


async def test_an_eviction_that_takes_a_disruption_keeps_the_budget() -> None:
    world = World()
    await world.write(web(), budget(1))
    await world.write(budget(0, "a"), by=EVICT)
    assert await world.write(web(**GOING), by=EVICT) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(budget(0), budget(-1, "a"), id="no disruption is allowed"),
        pytest.param(budget(2), budget(2, "a"), id="none is taken"),
        pytest.param(budget(1), budget(0), id="the pod is not recorded"),
        pytest.param(budget(1, observed=0), budget(0, "a", observed=0), id="the status is of an older generation"),
    ],
)
async def test_a_wrong_charge_of_an_eviction_is_reported(before: Object, after: Object) -> None:
    world = World()
    await world.write(web(), before)
    assert await world.write(after, by=EVICT) == ["eviction"]


async def test_an_eviction_without_a_disruption_is_reported() -> None:
    world = World()
    await world.write(web(), budget(1))
    assert await world.write(web(**GOING), by=EVICT) == ["eviction"]


async def test_a_pod_that_is_not_ready_or_that_a_newer_budget_selects_needs_no_disruption() -> None:
    unready, late = World(), World()
    await unready.write(changed(web(), name="b", uid="uid-b"), web(ready=False), budget(0))
    assert await unready.write(web(ready=False, **GOING), by=EVICT) == []
    await late.clock.advance(101)
    await late.write(web(), budget(0))
    assert await late.write(web(**GOING), by=EVICT) == []


async def test_a_budget_that_counts_pods_that_are_not_ready_is_reported() -> None:
    world = World()
    await world.write(web())
    assert await world.write(budget(0)) == []
    await world.write(web(ready=False))
    assert await world.write(budget(0)) == [], "it was ready in the last minute"
    await world.clock.advance(61)
    assert await world.write(budget(1)) == ["budget"]


# -- deletions ------------------------------------------------------------------------------------------------------------
HOLD = {"finalizers": ["simulation.example/hold"]}


@pytest.mark.parametrize(
    ("each", "by", "rules"),
    [
        pytest.param(obj("ConfigMap", "a"), DELETE, [], id="an object"),
        pytest.param(obj("ConfigMap", "a", **HOLD, **GOING), request("PATCH", "/"), [], id="the last finalizer"),
        pytest.param(obj("ConfigMap", "a", **HOLD, **GOING), DELETE, ["finalizer"], id="an object with finalizers"),
        pytest.param(obj("ConfigMap", "a", **HOLD), request("PATCH", "/"), ["finalizer"], id="no deletion"),
        pytest.param(pod("a", "n1", **GOING), DELETE, [], id="a pod that has stopped"),
        pytest.param(pod("a", "n1"), DELETE, ["grace period"], id="a pod that runs"),
        pytest.param(pod("a", "n1", phase="Failed"), DELETE, [], id="a pod that has ended"),
        pytest.param(pod("a"), DELETE, [], id="a pod without a node"),
    ],
)
async def test_finalizers_and_grace_periods_are_honoured(each: Object, by: Origin, rules: list[str]) -> None:
    world = World()
    await world.write(each)
    world.found.clear()  # the node does not exist
    assert await world.remove(each, by=by) == rules


async def test_an_object_that_stays_for_long_without_its_namespace_is_reported_once() -> None:
    world, namespace = World(), obj("Namespace", "default")
    await world.write(namespace, pod("a"))
    await world.remove(namespace)
    remains = world.safety._remains
    assert list(remains.check()) == []
    await world.clock.advance(901)
    assert [rule for rule, _ in remains.check()] == ["namespace"]
    assert list(remains.check()) == []


async def test_an_object_whose_namespace_comes_back_is_forgiven() -> None:
    world = World()
    await world.write(pod("a"))
    assert list(world.safety._remains.check()) == []
    await world.write(obj("Namespace", "default"))
    await world.clock.advance(901)
    assert list(world.safety._remains.check()) == []


# -- leases ---------------------------------------------------------------------------------------------------------------
AGENT = "kube-scheduler/v1/scheduler"


def sent(world: World, process: Process, agent: str = AGENT, method: str = "POST") -> list[str]:
    for listener in world.network.sent:
        listener(Origin(method, "/api/v1/pods", agent, process, 0.0))
    return world.rules


async def test_only_the_holder_of_a_lease_writes() -> None:
    world, scheduler = World(), Scheduler(random.Random(0))
    first, second = (Process(name, scheduler) for name in ("control-1", "control-2"))
    key = "/registry/leases/kube-system/kube-scheduler"
    for process in (first, second):
        ORIGIN.set(Origin("PUT", "/", "kube-scheduler/v1/leader-election", process, 0.0))
        value, present = json.dumps({"spec": {"holderIdentity": process.name}}).encode(), await world.store.get(key)
        await (world.store.create(key, value) if present is None else world.store.update(key, value, present.revision))
    ORIGIN.set(None)
    assert sent(world, second) == []
    assert sent(world, first, method="GET") == []
    assert sent(world, first, "kube-scheduler/v1/leader-election") == []
    assert sent(world, first) == ["fencing"]
    assert sent(world, first) == ["fencing"]  # not once more
