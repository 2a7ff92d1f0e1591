"""Nodes that a volume could be provisioned for: the class's topology, and the driver's reported capacity."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from control.scheduler.framework import PreFilterRejected
from control.scheduler.plugins import volume_binding, volume_matching
from control.scheduler.plugins.volume_binding import VolumeBinding
from control.scheduler.plugins.volume_provisioning import Provisioning, matches_topology
from control.scheduler.podinfo import PodInfo
from control.scheduler.unfinished import Unfinished
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.informer import Informer
from kube.json_object import Object
from kube.selectors import from_label_selector
from kube.volume_binding import BIND_COMPLETED
from tests.support.memory_api import MemoryAPI

from .clusters import ZONE, node, pod
from .test_volumes import cluster

NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"


class World:
    """A claim of 10Gi whose class waits for a pod, on node a in zone x, with what a test adds."""

    def __init__(self, *, capacity: bool | None = True, **storage: Any) -> None:
        api = MemoryAPI()
        client: Client = api.client()
        self.informers: dict[type[Any], Informer[Any]] = {
            kind: Informer(client, kind)
            for kind in (
                core_v1.PersistentVolumeClaim,
                core_v1.PersistentVolume,
                storage_v1.StorageClass,
                storage_v1.CSIDriver,
                storage_v1.CSIStorageCapacity,
            )
        }
        claims, volumes, classes, drivers, capacities = self.informers.values()
        self.plugin = VolumeBinding(client, claims, volumes, classes, Provisioning(drivers, capacities))
        self.add(
            storage_v1.StorageClass,
            {"metadata": {"name": "fast"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer", **storage},
        )
        self.add(storage_v1.CSIDriver, {"metadata": {"name": "d"}, "spec": {"storageCapacity": capacity}})
        self.add(
            core_v1.PersistentVolumeClaim,
            {
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {
                    "storageClassName": "fast",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "10Gi"}},
                },
            },
        )

    def add(self, kind: type[Any], body: Object) -> None:
        obj = msgspec.convert(body, kind)
        metadata = obj.metadata
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        self.informers[kind]._objects[key] = obj

    def room(self, amount: str, zone: str = "x", storage: str = "fast", **more: str) -> None:
        self.add(
            storage_v1.CSIStorageCapacity,
            {
                "metadata": {"name": f"room-{amount}-{zone}".lower(), "namespace": "driver"},
                "storageClassName": storage,
                "nodeTopology": {"matchLabels": {ZONE: zone}},
                "capacity": amount,
                **more,
            },
        )

    def judge(self) -> str:
        source = core_v1.PersistentVolumeClaimVolumeSource(claim_name="c")
        incoming = pod("p", volumes=[core_v1.Volume(name="v", persistent_volume_claim=source)])
        world = cluster(node("a", zone="x"))
        check = self.plugin.pre_filter(PodInfo(incoming), world)
        assert check is not None
        rejection = check.filter(world.nodes["a"])
        return rejection.reasons[0] if rejection is not None else ""


def test_a_node_needs_capacity_for_the_claim_if_the_driver_reports_capacity() -> None:
    assert World(capacity=False).judge() == World(capacity=None).judge() == ""
    world = World()
    assert world.judge() == NO_ROOM, "nothing is told yet"
    world.room("100Gi", zone="y")
    world.room("100Gi", storage="slow", zone="x")
    assert world.judge() == NO_ROOM, "room elsewhere, or of another class, is none"
    world.room("9Gi")
    assert world.judge() == NO_ROOM
    world.room("10Gi")
    assert world.judge() == ""


def test_places_may_be_described_in_any_way() -> None:
    for topology in ({}, {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["x", "y"]}]}):
        world = World()
        world.add(
            storage_v1.CSIStorageCapacity,
            {
                "metadata": {"name": "room", "namespace": "driver"},
                "storageClassName": "fast",
                "nodeTopology": topology,
                "capacity": "10Gi",
            },
        )
        assert world.judge() == ""


def test_the_maximum_volume_size_counts_if_it_is_reported() -> None:
    world = World()
    world.room("100Gi", maximumVolumeSize="5Gi")
    assert world.judge() == NO_ROOM


def test_a_class_makes_volumes_for_nodes_of_its_topology_only() -> None:
    def terms(*zones: str) -> list[Object]:
        return [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]

    assert World(capacity=False, allowedTopologies=terms("x", "y")).judge() == ""
    assert World(capacity=False, allowedTopologies=terms("y")).judge() == NONE_FREE
    assert World(capacity=False, provisioner="kubernetes.io/no-provisioner").judge() == NONE_FREE


@pytest.mark.parametrize(
    ("terms", "fits"),
    [([], True), ([{"a": ["1"]}], True), ([{"a": ["1"], "b": ["2"]}], False), ([{"b": ["2"]}, {"a": ["1"]}], True)],
)
def test_one_term_has_to_fit_wholly(terms: list[dict[str, list[str]]], fits: bool) -> None:
    made = [
        core_v1.TopologySelectorTerm(
            match_label_expressions=[
                core_v1.TopologySelectorLabelRequirement(key=key, values=values) for key, values in term.items()
            ]
        )
        for term in terms
    ]
    assert matches_topology(made, {"a": "1"}) is fits


def test_a_pod_with_a_lost_claim_is_not_placed_although_the_volume_exists() -> None:
    world = World(capacity=False)
    claim = world.informers[core_v1.PersistentVolumeClaim].get("default/c")
    assert claim is not None
    claim.spec.volume_name, claim.status.phase = "v", "Lost"
    claim.metadata.annotations[BIND_COMPLETED] = "yes"
    world.add(core_v1.PersistentVolume, {"metadata": {"name": "v"}, "spec": {"claimRef": {"name": "other"}}})
    with pytest.raises(PreFilterRejected, match='claim "c" bound to non-existent persistentvolume "v"'):
        world.judge()


# -- selectors of claims ----------------------------------------------------------------------------------------------
def selecting(world: World, terms: int) -> core_v1.PersistentVolumeClaim:
    """Let the claim select volumes by so many expressions, which none but the volume "v" fits."""
    claim: core_v1.PersistentVolumeClaim | None = world.informers[core_v1.PersistentVolumeClaim].get("default/c")
    assert claim is not None
    expressions = [
        meta_v1.LabelSelectorRequirement(key=f"k{number}", operator="NotIn", values=["z"]) for number in range(terms)
    ]
    claim.spec.selector = meta_v1.LabelSelector(match_labels={"kind": "own"}, match_expressions=expressions)
    for name, labels in (("v", {"kind": "own"}), ("other", {"kind": "own", "k0": "z"})):
        world.add(
            core_v1.PersistentVolume,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}},
                "status": {"phase": "Available"},
            },
        )
    return claim


def incoming() -> PodInfo:
    source = core_v1.PersistentVolumeClaimVolumeSource(claim_name="c")
    return PodInfo(pod("p", volumes=[core_v1.Volume(name="v", persistent_volume_claim=source)]))


async def test_a_large_selector_is_compiled_once_an_attempt_and_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = list[int]()

    def compiled(selector: Any) -> Any:
        threads.append(threading.get_ident())
        return from_label_selector(selector)

    for module in (volume_binding, volume_matching):
        monkeypatch.setattr(module, "from_label_selector", compiled)
    world, asking, nodes = World(), incoming(), cluster(node("a", zone="x"))
    claim = selecting(world, volume_matching.LARGE)
    with pytest.raises(Unfinished) as unfinished:
        world.plugin.pre_filter(asking, nodes)
    await unfinished.value.go_on()
    check = world.plugin.pre_filter(asking, nodes)
    assert check is not None and check.filter(nodes.nodes["a"]) is None
    world.plugin.reserve(asking, nodes.nodes["a"].node)
    assert world.plugin._reserved[asking.uid].chosen == {"default/c": "v"}
    assert len(threads) == 1 and threads[0] != threading.get_ident()
    claim.spec.selector = meta_v1.LabelSelector(match_labels=dict.fromkeys(map(str, range(999)), "x"))
    with pytest.raises(Unfinished):
        world.plugin.pre_filter(asking, nodes)


def test_a_small_selector_is_compiled_at_once() -> None:
    world, asking, nodes = World(), incoming(), cluster(node("a", zone="x"))
    selecting(world, 2)
    world.plugin.pre_filter(asking, nodes)
    world.plugin.reserve(asking, nodes.nodes["a"].node)
    assert world.plugin._reserved[asking.uid].chosen == {"default/c": "v"}
