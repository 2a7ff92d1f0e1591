"""Reaction of the scheduler to changes of pods."""

from __future__ import annotations

import msgspec

from control.scheduler.cluster import Cluster
from control.scheduler.event_handlers import EventHandlers
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from kube.api import core_v1
from kube.informer import Change
from tests.support.clock import FakeClock

from .clusters import World, node, pod


def change(new: core_v1.Pod, old: core_v1.Pod | None = None) -> Change[core_v1.Pod]:
    return Change("MODIFIED" if old is not None else "ADDED", old, new)


def nominated(incoming: core_v1.Pod, where: str) -> core_v1.Pod:
    return msgspec.structs.replace(incoming, status=core_v1.PodStatus(nominated_node_name=where or None))


def test_nominations_are_known_from_the_pods_themselves() -> None:
    cluster = Cluster()
    handlers = EventHandlers({"default-scheduler": lambda p: True}, cluster, SchedulingQueue(FakeClock()))
    incoming = pod("p")
    first, later = nominated(incoming, "a"), nominated(incoming, "")
    handlers.pod_changed(change(first))
    assert list(cluster.nominations.by_node) == ["a"]
    handlers.pod_changed(change(later, first))
    assert cluster.nominations.by_node == {}


def test_pods_of_other_schedulers_and_gated_ones_are_left_alone() -> None:
    queue = SchedulingQueue(FakeClock())
    handlers = EventHandlers({"mine": lambda p: p.metadata.name != "gated"}, Cluster(), queue)
    handlers.pod_changed(change(pod("usual")))
    handlers.pod_changed(change(pod("gated", scheduler_name="mine")))
    assert len(queue) == 0
    handlers.pod_changed(change(pod("p", scheduler_name="mine")))
    assert len(queue) == 1


def test_the_message_counts_every_node_of_a_large_cluster() -> None:
    world = World(*(node(f"n{number}", cpu="1") for number in range(350)))
    assert world.refusal(pod("p", "2")) == "0/350 nodes are available: 350 Insufficient cpu."


async def test_a_pod_that_is_resized_to_less_makes_room_for_those_that_wait() -> None:
    cluster, queue = Cluster(), SchedulingQueue(FakeClock())
    handlers = EventHandlers({"default-scheduler": lambda pod: True}, cluster, queue)
    cluster.set_node(node("n", cpu="2"))
    large, small = pod("there", "2"), pod("there", "1")
    large.spec.node_name = small.spec.node_name = "n"
    queue.add(PodInfo(pod("waits", "1")))
    queue.failed(await queue.get(), frozenset({"NodeResourcesFit"}))
    handlers.pod_changed(Change("ADDED", None, large))
    assert queue.lengths() == (0, 0, 1)
    handlers.pod_changed(Change("MODIFIED", large, small))
    assert cluster.nodes["n"].cpu == 1000 and queue.lengths()[2] == 0
