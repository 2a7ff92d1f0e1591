"""Volume constraints: disks that attach to one node, claims of one pod at a time, limits of drivers, zones."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from control.scheduler import disks as disks_of_pods
from control.scheduler.cluster import Cluster
from control.scheduler.disks import Disk, disks
from control.scheduler.plugins.volume_limits import NodeVolumeLimits, VolumeZone
from control.scheduler.plugins.volume_restrictions import VolumeRestrictions
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1, storage_v1
from kube.informer import Change
from tests.support.scheduling import Bench

from .clusters import ZONE, World, node, pod


def gce(read_only: bool) -> core_v1.Volume:
    return core_v1.Volume(
        name="v", gce_persistent_disk=core_v1.GCEPersistentDiskVolumeSource(pd_name="d", read_only=read_only)
    )


def aws(read_only: bool) -> core_v1.Volume:
    source = core_v1.AWSElasticBlockStoreVolumeSource(volume_id="d", read_only=read_only)
    return core_v1.Volume(name="v", aws_elastic_block_store=source)


def rbd(*monitors: str, read_only: bool = False) -> core_v1.Volume:
    source = core_v1.RBDVolumeSource(monitors=list(monitors), image="i", read_only=read_only)
    return core_v1.Volume(name="v", rbd=source)


@pytest.mark.parametrize(
    ("there", "incoming", "fits"),
    [
        (gce(True), gce(True), True),
        (gce(False), gce(True), False),
        (aws(True), aws(True), False),
        (rbd("m1", "m2"), rbd("m2", "m3"), False),
        (rbd("m1"), rbd("m2"), True),
        (rbd("m1", read_only=True), rbd("m1", read_only=True), True),
        (gce(False), aws(False), True),
    ],
)
def test_a_disk_is_on_a_node_twice_only_to_be_read(there: core_v1.Volume, incoming: core_v1.Volume, fits: bool) -> None:
    world = World(node("n"), shared={"VolumeRestrictions": VolumeRestrictions(Store())})
    world.put(pod("there", volumes=[there]), "n")
    if fits:
        assert world.place(pod("p", volumes=[incoming])) == "n"
    else:
        assert (
            world.refusal(pod("p", volumes=[incoming])) == "0/1 nodes are available: 1 node(s) had no available disk."
        )


def test_any_two_uses_of_two_pods_can_be_in_conflict() -> None:
    world = World(node("n"), shared={"VolumeRestrictions": VolumeRestrictions(Store())})
    world.put(pod("there", volumes=[gce(True), rbd("m1", read_only=True), rbd("m2", "m3")]), "n")
    assert world.place(pod("p", volumes=[gce(True), rbd("m1", read_only=True), rbd("m4")])) == "n"
    for incoming in ([gce(True), gce(False)], [rbd("m4"), rbd("m3", read_only=True)], [gce(True), rbd("m1")]):
        assert "1 node(s) had no available disk" in world.refusal(pod("p", volumes=incoming))


def test_the_disks_of_two_pods_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(found: core_v1.Pod) -> list[Disk]:
        calls.append(found.metadata.name)
        return disks(found)

    monkeypatch.setattr(disks_of_pods, "disks", counted)
    world = World(node("n"), shared={"VolumeRestrictions": VolumeRestrictions(Store())})
    world.put(pod("there", volumes=[rbd(f"m{i}") for i in range(50)]), "n")
    assert world.place(pod("p", volumes=[rbd(f"other{i}") for i in range(50)])) == "n"
    assert sorted(calls) == ["p", "there"]


def test_only_disks_that_the_pod_names_itself_count() -> None:
    assert disks(pod("p", volumes=[core_v1.Volume(name="e", empty_dir=core_v1.EmptyDirVolumeSource())])) == []


class Store:
    """An informer's reading side."""

    def __init__(self, *objects: Any) -> None:
        self._objects = {
            f"{o.metadata.namespace}/{o.metadata.name}" if o.metadata.namespace else o.metadata.name: o for o in objects
        }

        self._handlers: list[Any] = []

    def get(self, key: str) -> Any:
        return self._objects.get(key)

    def list(self) -> list[Any]:
        return list(self._objects.values())

    def subscribe(self, handler: Any) -> None:
        self._handlers.append(handler)

    def add_index(self, name: str, function: Any) -> None:
        self._index = function

    def by_index(self, name: str, value: str) -> builtins.list[Any]:
        return [obj for obj in self._objects.values() if value in self._index(obj)]

    def remove(self, key: str) -> None:
        del self._objects[key]

    def change(self, obj: Any) -> None:
        """Store an object's new state and report it."""
        key = f"{obj.metadata.namespace}/{obj.metadata.name}" if obj.metadata.namespace else obj.metadata.name
        old, self._objects[key] = self._objects.get(key), obj
        for handler in self._handlers:
            handler(Change("MODIFIED", old, obj))


def claim(name: str, volume: str = "", mode: str = "ReadWriteOnce") -> core_v1.PersistentVolumeClaim:
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PersistentVolumeClaimSpec(access_modes=[mode], volume_name=volume or None),
    )


def volume(name: str, **labels: str) -> core_v1.PersistentVolume:
    csi = core_v1.CSIPersistentVolumeSource(driver="d", volume_handle=name)
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, labels=labels), spec=core_v1.PersistentVolumeSpec(csi=csi)
    )


def user(name: str, *claims: str) -> core_v1.Pod:
    sources = [core_v1.PersistentVolumeClaimVolumeSource(claim_name=c) for c in claims]
    return pod(name, volumes=[core_v1.Volume(name=s.claim_name, persistent_volume_claim=s) for s in sources])


def judge(plugin: Any, incoming: core_v1.Pod, cluster: Cluster, on: str = "a") -> str:
    check = plugin.pre_filter(PodInfo(incoming), cluster)
    rejection = check.filter(cluster.nodes[on]) if check is not None else None
    return rejection.reasons[0] if rejection is not None else ""


def cluster(*nodes: core_v1.Node) -> Cluster:
    made = Cluster()
    for one in nodes:
        made.set_node(one)
    return made


def test_a_claim_for_one_pod_is_not_shared() -> None:
    plugin = VolumeRestrictions(Store(claim("own", mode="ReadWriteOncePod"), claim("shared")))  # type: ignore[arg-type]
    world = cluster(node("a"), node("b"))
    assert not judge(plugin, user("p", "own"), world)
    world.assume(PodInfo(user("first", "own", "shared")), "b")
    assert "ReadWriteOncePod" in judge(plugin, user("p", "own"), world)
    assert not judge(plugin, user("p", "shared"), world)
    world.forget("default/first", "uid-first")
    assert not judge(plugin, user("p", "own"), world)


def test_a_node_holds_as_many_volumes_of_a_driver_as_csinode_allows() -> None:
    claims = Store(*(claim(f"c{n}", f"v{n}") for n in range(3)))
    driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=2))
    nodes = Store(
        storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name="a"), spec=storage_v1.CSINodeSpec(drivers=[driver]))
    )
    plugin = NodeVolumeLimits(claims, Store(*(volume(f"v{n}") for n in range(3))), Store(), nodes, Store())  # type: ignore[arg-type]
    world = cluster(node("a"), node("b"))
    world.assume(PodInfo(user("there", "c0", "c1")), "a")
    assert judge(plugin, user("p", "c2"), world) == "node(s) exceed max volume count"
    assert not judge(plugin, user("p", "c1"), world)
    assert not judge(plugin, user("p", "c2"), world, "b")


def attachment(name: str, volume_name: str, on: str) -> storage_v1.VolumeAttachment:
    source = storage_v1.VolumeAttachmentSource(persistent_volume_name=volume_name)
    spec = storage_v1.VolumeAttachmentSpec(attacher="d", node_name=on, source=source)
    return storage_v1.VolumeAttachment(metadata=meta_v1.ObjectMeta(name=name), spec=spec)


def test_volumes_that_are_still_attached_count_without_their_pods() -> None:
    claims = Store(*(claim(f"c{n}", f"v{n}") for n in range(3)))
    driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=2))
    nodes = Store(
        storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name="a"), spec=storage_v1.CSINodeSpec(drivers=[driver]))
    )
    attachments = Store(attachment("x", "v0", "a"), attachment("y", "v1", "a"), attachment("z", "gone", "a"))
    volumes = Store(*(volume(f"v{n}") for n in range(3)))
    plugin = NodeVolumeLimits(claims, volumes, Store(), nodes, attachments)  # type: ignore[arg-type]
    world = cluster(node("a"), node("b"))
    world.assume(PodInfo(user("there", "c0")), "a")
    assert judge(plugin, user("p", "c2"), world) == "node(s) exceed max volume count"
    assert not judge(plugin, user("p", "c1"), world), "it is there"
    assert not judge(plugin, user("p", "c2"), world, "b")
    attachments.remove("y")
    assert not judge(plugin, user("p", "c2"), world)


async def test_a_pod_that_found_no_room_for_its_volume_is_tried_again_when_another_is_detached() -> None:
    bench = Bench()
    driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=1))
    bench.put(
        node("a"),
        storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name="a"), spec=storage_v1.CSINodeSpec(drivers=[driver])),
        volume("v0"),
        volume("v1"),
    )
    bound = claim("c1", "v1")
    bound.metadata.annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    there = attachment("x", "v0", "a")
    bench.put(bound, there, user("p", "c1"))
    (decision,) = bench.schedule()
    assert "exceed max volume count" in str(decision)
    there.status.attached = True
    bench.put(there)
    await bench.clock.advance(2)
    assert bench.scheduler.queue.lengths()[0] == 0, "an attachment lets no pod fit"
    bench.remove(there)
    await bench.clock.advance(2)
    queued = await bench.scheduler.queue.get()
    assert type(bench.scheduler._cycle.decide(queued)).__name__ == "Placed"


def test_volumes_on_a_node_follow_its_pods_and_their_claims() -> None:
    claims = Store(*(claim(f"c{n}", f"v{n}") for n in range(4)))
    volumes = Store(*(volume(f"v{n}") for n in range(4)))
    driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=2))
    nodes = Store(
        storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name="a"), spec=storage_v1.CSINodeSpec(drivers=[driver]))
    )
    plugin = NodeVolumeLimits(claims, volumes, Store(), nodes, Store())  # type: ignore[arg-type]
    world = cluster(node("a"))
    world.assume(PodInfo(user("one", "c0")), "a")
    world.assume(PodInfo(user("two", "c1")), "a")
    assert judge(plugin, user("p", "c2"), world) == "node(s) exceed max volume count"
    claims.change(claim("c1", "v0"))
    assert not judge(plugin, user("p", "c2"), world)  # both have the same volume now
    claims.change(claim("c1", "v1"))
    assert judge(plugin, user("p", "c2"), world)
    volumes.change(core_v1.PersistentVolume(metadata=meta_v1.ObjectMeta(name="v1")))
    assert not judge(plugin, user("p", "c2"), world)  # it is no CSI volume now
    world.assume(PodInfo(user("three", "c3")), "a")
    assert judge(plugin, user("p", "c2"), world)
    world.remove_pod("default/one")
    assert not judge(plugin, user("p", "c2"), world)


def test_a_volume_of_a_zone_keeps_its_pod_there() -> None:
    plugin = VolumeZone(Store(claim("c", "v")), Store(volume("v", **{ZONE: "x__y"})))  # type: ignore[arg-type]
    world = cluster(node("a", zone="x"), node("b", zone="z"), node("none"))
    assert not judge(plugin, user("p", "c"), world)
    assert judge(plugin, user("p", "c"), world, "b") == "node(s) had no available volume zone"
    assert not judge(plugin, user("p", "c"), world, "none")


def test_a_volume_with_labels_of_old_goes_to_nodes_with_todays() -> None:
    of_old = volume("v", **{"failure-domain.beta.kubernetes.io/zone": "z1"})
    plugin = VolumeZone(Store(claim("c", "v")), Store(of_old))  # type: ignore[arg-type]
    world = cluster(node("a", zone="z1"), node("b", zone="z2"), node("none"))
    assert not judge(plugin, user("p", "c"), world, "a")
    assert judge(plugin, user("p", "c"), world, "b") == "node(s) had no available volume zone"
    assert not judge(plugin, user("p", "c"), world, "none")
