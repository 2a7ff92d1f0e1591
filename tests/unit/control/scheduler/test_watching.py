"""What the scheduler takes in from pods' changes."""

from __future__ import annotations

import msgspec

from control.scheduler.cluster import Cluster
from control.scheduler.queue import SchedulingQueue
from control.scheduler.watching import Watching
from kube.api import core_v1
from kube.clock import FakeClock
from kube.informer import Change

from .clusters import World, node, pod


def change(new: core_v1.Pod, old: core_v1.Pod | None = None) -> Change[core_v1.Pod]:
    return Change("MODIFIED" if old is not None else "ADDED", old, new)


def nominated(wish: core_v1.Pod, where: str) -> core_v1.Pod:
    return msgspec.structs.replace(wish, status=core_v1.PodStatus(nominated_node_name=where or None))


def test_nominations_are_known_from_the_pods_themselves() -> None:
    cluster = Cluster()
    watching = Watching({"default-scheduler": lambda p: True}, cluster, SchedulingQueue(FakeClock()))
    wish = pod("p")
    first, later = nominated(wish, "a"), nominated(wish, "")
    watching.pod_changed(change(first))
    assert list(cluster.nominated) == ["a"]
    watching.pod_changed(change(later, first))
    assert cluster.nominated == {}


def test_pods_of_other_schedulers_and_gated_ones_are_left_alone() -> None:
    queue = SchedulingQueue(FakeClock())
    watching = Watching({"mine": lambda p: p.metadata.name != "gated"}, Cluster(), queue)
    watching.pod_changed(change(pod("usual")))
    watching.pod_changed(change(pod("gated", scheduler_name="mine")))
    assert len(queue) == 0
    watching.pod_changed(change(pod("p", scheduler_name="mine")))
    assert len(queue) == 1


def test_the_message_counts_every_node_of_a_large_cluster() -> None:
    world = World(*(node(f"n{number}", cpu="1") for number in range(350)))
    assert world.refusal(pod("p", "2")) == "0/350 nodes are available: 350 Insufficient cpu."
