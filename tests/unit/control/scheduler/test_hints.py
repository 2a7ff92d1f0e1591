"""Which changes wake which pods, and what volumes allow."""

from __future__ import annotations

from typing import Any

import pytest

from control.scheduler import hints
from control.scheduler.cluster import Cluster
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.volume_limits import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from kube.api import core_v1, meta_v1, storage_v1
from kube.clock import FakeClock

from .clusters import ZONE, node, pod

BIG, SMALL = NodeInfo(node("big", cpu="8")), NodeInfo(node("small", cpu="1"))
TAINT = core_v1.Taint(key="k", effect="NoSchedule")


@pytest.mark.parametrize(
    ("plugin", "wish", "place", "helps"),
    [
        ("NodeResourcesFit", pod("p", "2"), BIG, True),
        ("NodeResourcesFit", pod("p", "2"), SMALL, False),
        ("NodeAffinity", pod("p", node_selector={ZONE: "a"}), NodeInfo(node("n", zone="a")), True),
        ("NodeAffinity", pod("p", node_selector={ZONE: "a"}), NodeInfo(node("n", zone="b")), False),
        ("TaintToleration", pod("p"), NodeInfo(node("n", taints=[TAINT])), False),
        ("TaintToleration", pod("p"), BIG, True),
        ("NodeUnschedulable", pod("p"), NodeInfo(node("n", unschedulable=True)), False),
        ("InterPodAffinity", pod("p"), SMALL, True),
    ],
)
def test_a_node_helps_pods_that_could_go_there(plugin: str, wish: core_v1.Pod, place: NodeInfo, helps: bool) -> None:
    assert hints.of_node(place)(plugin, PodInfo(wish)) is helps


@pytest.mark.parametrize(
    ("plugin", "gone", "wish", "helps"),
    [
        ("NodeResourcesFit", pod("g", "1"), pod("p", "2"), True),
        ("NodeResourcesFit", pod("g"), pod("p", "2"), False),
        ("NodeResourcesFit", pod("g", memory="1Gi"), pod("p", "2"), False),
        ("NodePorts", pod("g", ports=(80,)), pod("p", ports=(80,)), True),
        ("NodePorts", pod("g", ports=(81,)), pod("p", ports=(80,)), False),
        ("PodTopologySpread", pod("g"), pod("p"), True),
    ],
)
def test_a_pod_that_goes_helps_those_who_want_what_it_had(
    plugin: str, gone: core_v1.Pod, wish: core_v1.Pod, helps: bool
) -> None:
    assert hints.of_departure(PodInfo(gone), BIG)(plugin, PodInfo(wish)) is helps


def test_a_full_node_is_helped_by_anybody_who_goes() -> None:
    full = NodeInfo(node("n", pods="1"))
    assert hints.of_departure(PodInfo(pod("g")), full)("NodeResourcesFit", PodInfo(pod("p", "1")))


async def test_the_queue_leaves_pods_that_a_change_cannot_help() -> None:
    queue = SchedulingQueue(FakeClock())
    for name, cpu in (("large", "4"), ("little", "500m")):
        queue.add(PodInfo(pod(name, cpu)))
        queue.failed(await queue.get(), frozenset({"NodeResourcesFit"}))
    queue.event(frozenset({"NodeResourcesFit"}), hints.of_node(SMALL))
    assert queue.lengths() == (0, 1, 1)
    assert (await queue.get()).key == "default/little"


# -- volumes ----------------------------------------------------------------------------------------------------------
class Store:
    """An informer's reading side."""

    def __init__(self, *objects: Any) -> None:
        self._objects = {
            f"{o.metadata.namespace}/{o.metadata.name}" if o.metadata.namespace else o.metadata.name: o for o in objects
        }

    def get(self, key: str) -> Any:
        return self._objects.get(key)


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


def judge(plugin: Any, wish: core_v1.Pod, cluster: Cluster, on: str = "a") -> str:
    check = plugin.pre_filter(PodInfo(wish), cluster)
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
    world.forget("default/first")
    assert not judge(plugin, user("p", "own"), world)


def test_a_node_holds_as_many_volumes_of_a_driver_as_it_says() -> None:
    claims = Store(*(claim(f"c{n}", f"v{n}") for n in range(3)))
    driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=2))
    nodes = Store(
        storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name="a"), spec=storage_v1.CSINodeSpec(drivers=[driver]))
    )
    plugin = NodeVolumeLimits(claims, Store(*(volume(f"v{n}") for n in range(3))), Store(), nodes)  # type: ignore[arg-type]
    world = cluster(node("a"), node("b"))
    world.assume(PodInfo(user("there", "c0", "c1")), "a")
    assert judge(plugin, user("p", "c2"), world) == "node(s) exceed max volume count"
    assert not judge(plugin, user("p", "c1"), world)
    assert not judge(plugin, user("p", "c2"), world, "b")


def test_a_volume_of_a_zone_keeps_its_pod_there() -> None:
    plugin = VolumeZone(Store(claim("c", "v")), Store(volume("v", **{ZONE: "x__y"})))  # type: ignore[arg-type]
    world = cluster(node("a", zone="x"), node("b", zone="z"), node("none"))
    assert not judge(plugin, user("p", "c"), world)
    assert judge(plugin, user("p", "c"), world, "b") == "node(s) had no available volume zone"
    assert not judge(plugin, user("p", "c"), world, "none")
