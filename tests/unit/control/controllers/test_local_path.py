"""Volumes of the local-path provisioner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.local_path import LocalPathProvisioner, plan
from kube.api import core_v1
from kube.client import Response
from kube.errors import StatusError
from kube.volume_binding import LOCAL_PATH_FOLDER, LOCAL_PATH_NODE, node_fits
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working


def claim(**spec: Any) -> core_v1.PersistentVolumeClaim:
    body = {
        "metadata": {"name": "data", "namespace": "shop", "uid": "u1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }
    return msgspec.convert(body, core_v1.PersistentVolumeClaim)


def node(folder: str = "/var/lib/kubelet/local-path", name: str = "a", host: str = "a") -> core_v1.Node:
    annotations = {LOCAL_PATH_FOLDER: folder} if folder else {}
    labels = {"kubernetes.io/hostname": host} if host else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels, "annotations": annotations}}, core_v1.Node)


def older(host: str) -> core_v1.PersistentVolume:
    """Return a volume as earlier versions made it: with the value of its node's hostname label alone."""
    volume = plan.volume_for(claim(), plan.storage_class(), node(name=host, host=host))
    del volume.metadata.annotations[LOCAL_PATH_NODE]
    return volume


def nodes_of(volume: core_v1.PersistentVolume, *nodes: core_v1.Node) -> list[str | None]:
    return [each.metadata.name for each in plan.nodes_of(volume, nodes)]


def test_a_claim_becomes_a_folder_on_its_node() -> None:
    volume = plan.volume_for(claim(), plan.storage_class(), node())
    assert volume.metadata.name == "pvc-u1" and volume.metadata.finalizers == [plan.FINALIZER]
    assert volume.spec.local is not None and volume.spec.local.path == "/var/lib/kubelet/local-path/pvc-u1"
    assert volume.spec.capacity == {"storage": "1Gi"} and volume.spec.persistent_volume_reclaim_policy == "Delete"
    assert volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == "u1"
    assert node_fits(volume, node()) and nodes_of(volume, node()) == ["a"] and plan.is_ours(volume)
    assert not plan.is_done_with(volume)
    assert volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None
    (term,) = volume.spec.node_affinity.required.node_selector_terms
    assert [(r.key, r.values) for r in term.match_expressions] == [("kubernetes.io/hostname", ["a"])]


@pytest.mark.parametrize("host", ["victim", ""])
def test_a_volume_stays_on_its_node_whatever_hostname_the_node_names(host: str) -> None:
    volume = plan.volume_for(claim(), plan.storage_class(), node(name="evil", host=host))
    victim = node(name="victim", host="victim")
    assert not node_fits(volume, victim) and nodes_of(volume, victim) == []
    for named in (host, "evil", "other"):
        evil = node(name="evil", host=named)
        assert node_fits(volume, evil) and nodes_of(volume, victim, evil) == ["evil"]


def test_a_node_that_names_anothers_hostname_gets_neither_its_volumes_nor_their_deletion() -> None:
    evil, victim = node(name="evil", host="victim"), node(name="victim", host="victim")
    volume = plan.volume_for(claim(), plan.storage_class(), victim)
    assert node_fits(volume, victim) and not node_fits(volume, evil)
    assert nodes_of(volume, evil, victim) == ["victim"] and nodes_of(volume, evil) == []
    assert nodes_of(older("victim"), evil, victim) == ["victim"]


def test_older_volumes_are_deleted_on_every_node_that_may_have_them() -> None:
    renamed, evil, other = node(name="a", host="host-a"), node(name="evil", host="host-a"), node(name="b", host="b")
    assert nodes_of(older("host-a"), renamed, other) == ["a"]
    assert nodes_of(older("host-a"), evil, renamed, other) == ["evil", "a"]
    assert nodes_of(older("gone"), renamed, other) == []


@pytest.mark.parametrize(
    ("spec", "folder", "why"),
    [
        ({"accessModes": ["ReadWriteMany"]}, "/v", "cannot be ReadWriteMany"),
        ({"volumeMode": "Block"}, "/v", "no block device"),
        ({"selector": {}}, "/v", "chosen by labels"),
        ({"volumeAttributesClassName": "gold"}, "/v", "volumeAttributesClassName is not supported"),
        ({}, "", "node a does not say where it keeps volumes"),
        ({}, "local-path", "is not an absolute path"),
        ({}, "/var/lib/../local-path", "is not an absolute path"),
        ({}, "/var/lib/\0", "is not an absolute path"),
    ],
)
def test_what_a_folder_cannot_be_is_refused(spec: dict[str, Any], folder: str, why: str) -> None:
    with pytest.raises(plan.CannotProvision, match=why):
        plan.volume_for(claim(**spec), plan.storage_class(), node(folder))


class World(LaggingAPI):
    """An API with nodes whose agents remove folders; those in `failing` answer with an error."""

    def __init__(self, *nodes: core_v1.Node) -> None:
        super().__init__()
        self.failing: set[str] = set()
        self.removed: list[str] = []
        """Nodes that were asked to remove a folder."""
        for each in nodes:
            self.put(each)

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if "/proxy/localVolumes/" not in path:
            return await super().request(method, path, **options)
        assert method == "DELETE" and path.endswith("/proxy/localVolumes/pvc-u1")
        self.removed.append(path.split("/")[4])
        if self.removed[-1] in self.failing:
            raise StatusError(500, "InternalError", "no")
        return Response(200, {}, b"{}")


def released(volume: core_v1.PersistentVolume) -> core_v1.PersistentVolume:
    volume.status = core_v1.PersistentVolumeStatus(phase="Released")
    return volume


async def test_a_folder_is_removed_by_the_agent_of_the_node_that_the_volume_records() -> None:
    evil, victim = node(name="evil", host="victim"), node(name="victim", host="victim")
    world = World(evil, victim)
    world.put(released(plan.volume_for(claim(), plan.storage_class(), victim)))
    async with working(world, FakeClock(), LocalPathProvisioner):
        await settle(100)
    assert world.removed == ["victim"] and world.read(core_v1.PersistentVolume, "pvc-u1") is None


async def test_the_folder_of_an_older_volume_is_removed_on_every_node_that_may_have_it() -> None:
    evil, renamed, clock = node(name="evil", host="host-a"), node(name="a", host="host-a"), FakeClock()
    world = World(evil, renamed)
    world.failing.add("evil")
    world.put(released(older("host-a")))
    async with working(world, clock, LocalPathProvisioner):
        await settle(100)
        assert set(world.removed) == {"evil", "a"}
        assert world.read(core_v1.PersistentVolume, "pvc-u1") is not None
        world.failing.clear()
        await clock.advance(60)
        assert world.read(core_v1.PersistentVolume, "pvc-u1") is None
