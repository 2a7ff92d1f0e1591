"""The rules of what controllers write: each reports what no recent state of the store allows, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.history import Acknowledged
from simulation.origin import Origin
from tests.support.oracle_world import Object, World, obj, pod, request

COLLECTOR, NAMESPACES, STATEFUL, DEPLOYMENTS = (
    request("DELETE", "/", f"kube-controller-manager/v1/system:serviceaccount:kube-system:{account}")
    for account in (
        "generic-garbage-collector",
        "namespace-controller",
        "statefulset-controller",
        "deployment-controller",
    )
)
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def owned(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True, **more}]}


def child(name: str, kind: str, owner: str, *, ready: bool = True, **meta: Any) -> Object:
    each = pod(name, **owned(kind, owner), **meta)
    each["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return each


def sized(kind: str, name: str, replicas: int, **meta: Any) -> Object:
    return obj(kind, name, {"replicas": replicas}, **meta)


# -- ReplicaSets and Deployments --------------------------------------------------------------------------------------------
async def test_a_replica_set_has_as_many_pods_as_it_wanted_in_the_last_minute() -> None:
    world = World()
    await world.write(sized("ReplicaSet", "r", 2), child("a", "ReplicaSet", "r"), sized("ReplicaSet", "r", 1))
    assert await world.write(child("b", "ReplicaSet", "r")) == [], "it wanted two a moment ago"
    await world.clock.advance(61)
    assert await world.write(child("c", "ReplicaSet", "r")) == ["surplus pod"]


async def test_pods_that_end_or_go_are_no_surplus() -> None:
    world = World()
    gone, ended = child("a", "ReplicaSet", "r", **GOING), child("b", "ReplicaSet", "r")
    ended["status"] |= {"phase": "Failed", "reason": "Evicted"}
    assert await world.write(sized("ReplicaSet", "r", 1), gone, ended, child("c", "ReplicaSet", "r")) == []


async def test_a_deployment_has_no_more_pods_than_its_surge_allows() -> None:
    world = World()
    sets = [sized("ReplicaSet", name, size, **owned("Deployment", "d")) for name, size in (("one", 4), ("two", 1))]
    assert await world.write(sized("Deployment", "d", 4), *sets, by=DEPLOYMENTS) == []
    assert await world.write(sized("ReplicaSet", "new", 0, **owned("Deployment", "d")), by=DEPLOYMENTS) == []
    assert await world.write(sized("ReplicaSet", "two", 2, **owned("Deployment", "d")), by=DEPLOYMENTS) == ["surge"]


@pytest.mark.parametrize(("new", "rules"), [(0, ["availability"]), (3, [])])
async def test_a_rolling_update_leaves_enough_pods_available(new: int, rules: list[str]) -> None:
    world = World()

    def replica_set(name: str, replicas: int, available: int) -> Object:
        each = sized("ReplicaSet", name, replicas, **owned("Deployment", "d"))
        return each | {"status": {"availableReplicas": available}}

    await world.write(sized("Deployment", "d", 4), replica_set("old", 4, 4), replica_set("new", 4, new))
    assert await world.write(replica_set("old", 1, 4), by=DEPLOYMENTS) == rules


# -- StatefulSets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ready", "policy", "rules"),
    [(True, "OrderedReady", []), (False, "OrderedReady", ["ordinal order"]), (False, "Parallel", [])],
)
async def test_an_ordinal_waits_for_the_one_before(ready: bool, policy: str, rules: list[str]) -> None:
    world, workload = World(), sized("StatefulSet", "s", 2)
    workload["spec"]["podManagementPolicy"] = policy
    await world.write(workload, child("s-0", "StatefulSet", "s", ready=ready))
    assert await world.write(child("s-1", "StatefulSet", "s")) == rules


@pytest.mark.parametrize(("last", "rules"), [("s-2", []), ("s-1", ["ordinal order"])])
async def test_the_last_ordinal_goes_first(last: str, rules: list[str]) -> None:
    world = World()
    await world.write(sized("StatefulSet", "s", 3), *(child(f"s-{n}", "StatefulSet", "s") for n in range(3)))
    await world.write(sized("StatefulSet", "s", 1))
    assert await world.write(child(last, "StatefulSet", "s", **GOING), by=STATEFUL) == rules


# -- deletions --------------------------------------------------------------------------------------------------------------
async def test_what_has_an_owner_is_not_collected() -> None:
    world, each = World(), child("a", "ReplicaSet", "r")
    await world.write(sized("ReplicaSet", "r", 1), each)
    assert await world.remove(each, by=COLLECTOR) == ["garbage"]


@pytest.mark.parametrize("policy", ["", "foregroundDeletion"])
async def test_what_has_lost_its_owner_or_goes_before_it_is_collected(policy: str) -> None:
    world, each, replica_set = World(), child("a", "ReplicaSet", "r"), sized("ReplicaSet", "r", 1)
    await world.write(replica_set, each)
    if policy:
        await world.write(sized("ReplicaSet", "r", 1, finalizers=[policy], **GOING))
    else:
        await world.remove(replica_set)
    assert await world.remove(each, by=COLLECTOR) == []


async def test_an_owner_waits_for_dependents_that_block_it() -> None:
    world = World()
    owner = sized("ReplicaSet", "r", 1, finalizers=["foregroundDeletion"], **GOING)
    blocking = pod("a", **owned("ReplicaSet", "r", blockOwnerDeletion=True))
    await world.write(sized("ReplicaSet", "r", 1), blocking, owner)
    by = Origin("PATCH", "/", COLLECTOR.agent, None, 0.0)
    await world.clock.advance(61)
    assert await world.remove(owner, by=by) == ["foreground deletion"]


PATH = "/apis/apps/v1/namespaces/default/replicasets/r"


async def deleted(world: World, policy: str, *, again: bool = False) -> None:
    """Delete a ReplicaSet with a pod as a user; `again`: before the answer, a second time."""
    owner, dependent = sized("ReplicaSet", "r", 1), pod("a", **owned("ReplicaSet", "r", blockOwnerDeletion=True))
    await world.write(owner, dependent)
    (sent,), (listener,) = world.deletions, world.listeners
    number = sent(PATH)
    if again:
        sent(PATH)
    await world.remove(owner)
    listener(Acknowledged("DELETE", PATH, "r", 0, sent=61.0, policy=policy, uid="uid-r", number=number))


@pytest.mark.parametrize(
    ("policy", "again", "rules"),
    [("Orphan", False, ["orphan"]), ("Orphan", True, []), ("Background", False, [])],
)
async def test_dependents_of_an_orphaning_deletion_stay(policy: str, again: bool, rules: list[str]) -> None:
    world = World()
    await deleted(world, policy, again=again)
    assert await world.remove(pod("a"), by=COLLECTOR) == rules


async def test_an_owner_that_is_gone_at_once_was_not_deleted_in_the_foreground() -> None:
    world = World()
    await deleted(world, "Foreground")
    assert world.rules == ["foreground deletion"]


async def test_a_namespace_loses_its_pods_first() -> None:
    world, each = World(), obj("ConfigMap", "c")
    await world.write(pod("a"), each)
    assert await world.remove(each, by=NAMESPACES) == ["namespace order"]
    await world.remove(pod("a"))
    await world.write(each)
    assert await world.remove(each, by=NAMESPACES) == ["namespace order"]


async def test_nothing_is_created_in_a_namespace_that_has_been_going_for_long() -> None:
    world, folder = World(), "/api/v1/namespaces/default/configmaps"
    await world.write(obj("Namespace", "default", **GOING), obj("ConfigMap", "a"))
    (listener,) = world.listeners
    listener(Acknowledged("POST", folder, "a", 2, sent=10.0))
    listener(Acknowledged("PATCH", f"{folder}/a", "a", 2, sent=20.0))
    assert world.rules == []
    listener(Acknowledged("POST", folder, "a", 2, sent=20.0))
    assert world.rules == ["terminating namespace"]


# -- endpoints --------------------------------------------------------------------------------------------------------------
async def test_only_pods_that_were_ready_are_endpoints() -> None:
    world = World()

    def piece(name: str) -> Object:
        target = {"targetRef": {"kind": "Pod", "name": name}, "conditions": {"ready": True}, "addresses": ["10.1.0.1"]}
        return obj("EndpointSlice", "e") | {"endpoints": [target]}

    await world.write(child("a", "ReplicaSet", "r"), child("b", "ReplicaSet", "r", ready=False))
    assert await world.write(piece("a")) == []
    assert await world.write(piece("b")) == ["endpoint"]
