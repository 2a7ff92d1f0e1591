"""The rules of the simulation: each reports what breaks it, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from control.storage.memory import MemoryStore
from simulation.history import Acknowledged
from simulation.oracles.convergence import unsettled
from simulation.oracles.objects import Objects
from tests.support.clock import FakeClock
from tests.support.oracle_world import Object, World, changed, obj, pod


def ended(name: str, node: str = "") -> Object:
    """Return a pod whose container is not restarted."""
    each = pod(name, node, "2", "Succeeded")
    each["spec"]["restartPolicy"] = "Never"
    return each


def service(name: str, address: str, port: int = 0) -> Object:
    return obj("Service", name, {"clusterIPs": [address], "ports": [{"port": 80, "nodePort": port}]})


NODE = obj("Node", "n1", status={"allocatable": {"cpu": "2", "pods": "2"}})


@pytest.mark.parametrize(
    ("writes", "rules"),
    [
        pytest.param([NODE, pod("a", "n1"), pod("b", "n1")], [], id="two pods that fit"),
        pytest.param([NODE, pod("a"), pod("a", "n1"), pod("a", "n1")], [], id="a binding"),
        pytest.param([NODE, pod("a", "n1", "2"), pod("b", "n1")], ["fit"], id="too many processors"),
        pytest.param([NODE, *(pod(name, "n1", "0") for name in "abc")], ["fit"], id="too many pods"),
        pytest.param([NODE, ended("a", "n1"), pod("b", "n1", "2")], [], id="a pod that has ended"),
        pytest.param([pod("a", "n9")], ["binding"], id="a node that does not exist"),
        pytest.param([NODE, pod("a", "n1"), pod("a", "")], ["binding"], id="a binding that ends"),
        pytest.param([ended("a"), pod("a")], ["phase"], id="a pod that has ended and runs"),
        pytest.param([pod("a", phase="Failed")], ["restart policy"], id="a pod that ends and is to be restarted"),
        pytest.param([service("a", "10.0.0.1"), service("b", "10.0.0.2")], [], id="two addresses"),
        pytest.param([service("a", "10.0.0.1"), service("b", "10.0.0.1")], ["address"], id="one address twice"),
        pytest.param([service("a", "None"), service("b", "None")], [], id="two headless Services"),
        pytest.param([service("a", "1", 30000), service("b", "2", 30000)], ["node port"], id="one node port twice"),
        pytest.param([pod("a"), changed(pod("a"), uid="other")], ["identity"], id="another UID"),
        pytest.param([pod("a", generation=2), pod("a", generation=1)], ["identity"], id="a generation that falls"),
        pytest.param(
            [pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), pod("a")], ["deletion"], id="a deletion undone"
        ),
        pytest.param(
            [obj("Job", "j", {"completions": 2}, {"succeeded": n}) for n in (0, 2, 1)], ["completions"], id="fewer"
        ),
        pytest.param(
            [obj("Job", "j", {"completions": 2}, {"succeeded": n}) for n in (2, 3)], ["completions"], id="more"
        ),
    ],
)
async def test_each_rule_reports_what_breaks_it(writes: list[Object], rules: list[str]) -> None:
    assert await World().write(*writes) == rules


async def test_an_acknowledged_write_must_be_in_the_store() -> None:
    world = World()
    await world.write(pod("a"))
    (listener,) = world.listeners
    folder = "/api/v1/namespaces/default/pods"
    listener(Acknowledged("POST", folder, "a", 1))
    assert world.found == []
    listener(Acknowledged("POST", folder, "a", 2))
    listener(Acknowledged("POST", folder, "b", 1))
    assert [violation.rule for violation in world.found] == ["acknowledged"] * 2


def settled() -> list[tuple[str, Object]]:
    """Return the keys and objects of a cluster with one node and a Deployment, in which all is as it should be."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    counts = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1}
    meta = {"generation": 1}
    deployment = obj("Deployment", "web", {"replicas": 1}, counts, uid="d", **meta)
    owned = {"ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}]}
    replica_set = obj("ReplicaSet", "web-1", {"replicas": 1}, counts, uid="r", **meta, **owned)
    owned = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}]}
    running = obj("Pod", "web-1-a", {"nodeName": "n1"}, {"phase": "Running", "podIP": "10.1.0.1", **ready}, **owned)
    running["metadata"]["labels"] = {"app": "web"}
    piece = {
        "metadata": {"namespace": "default", "name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": True}}],
    }
    return [
        ("minions/n1", obj("Node", "n1", status=ready)),
        ("namespaces/default", {"metadata": {"name": "default", "uid": "ns"}}),
        ("deployments/default/web", deployment),
        ("replicasets/default/web-1", replica_set),
        ("pods/default/web-1-a", running),
        ("services/specs/default/web", obj("Service", "web", {"selector": {"app": "web"}})),
        ("endpointslices/default/web-x", piece),
    ]


def complaints(changes: dict[str, Callable[[Object], object]], without: str = "") -> list[str]:
    """Return what is unsettled in that cluster after changes of objects, by their keys."""

    async def work() -> list[str]:
        store = MemoryStore(FakeClock())
        objects = Objects(store)
        for key, each in settled():
            if key in changes:
                changes[key](each)
            if key != without:
                await store.create(f"/registry/{key}", json.dumps(each).encode())
        return list(unsettled(objects, 1))

    return asyncio.run(work())


def test_a_settled_cluster_has_no_complaints() -> None:
    assert complaints({}) == []


@pytest.mark.parametrize(
    ("key", "change", "words"),
    [
        ("minions/n1", lambda o: o["status"].clear(), "0 of 1 nodes are Ready"),
        ("minions/n1", lambda o: o["spec"].update(taints=[{"key": "x"}]), "has taints"),
        ("deployments/default/web", lambda o: o["spec"].update(replicas=2), "replicas is 1, not 2"),
        ("deployments/default/web", lambda o: o["metadata"].update(generation=2), "was not observed"),
        ("replicasets/default/web-1", lambda o: o["spec"].update(replicas=2), "has 1 pods, 1 of them Ready, not 2"),
        ("pods/default/web-1-a", lambda o: o["status"].pop("conditions"), "0 of them Ready"),
        ("pods/default/web-1-a", lambda o: o["metadata"].update(deletionTimestamp="x"), "is still being deleted"),
        ("endpointslices/default/web-x", lambda o: o["endpoints"].clear(), "its endpoints are []"),
    ],
)
def test_each_unsettled_object_is_named(key: str, change: Callable[[Object], object], words: str) -> None:
    found = complaints({key: change})
    assert any(words in each for each in found), found


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("deployments/default/web", "replicasets ReplicaSet default/web-1 has lost its owner Deployment web"),
        ("replicasets/default/web-1", "pods Pod default/web-1-a has lost its owner ReplicaSet web-1"),
        ("namespaces/default", "is in a namespace that does not exist"),
    ],
)
def test_objects_without_owner_or_namespace_are_named(without: str, words: str) -> None:
    assert any(words in each for each in complaints({}, without))
