"""The binding cycle's taking back: of this very pod, not of another one of its name, and whatever a plugin does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from control.scheduler.binding_cycle import BindingCycle
from control.scheduler.cluster import Cluster
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from control.scheduler.queued_pod import QueuedPod
from kube.api import core_v1
from kube.errors import StatusError
from kube.informer import Change
from tests.support.clock import FakeClock

from .clusters import node, pod

REFUSED = StatusError(422, "Invalid", "refused")


class Pods:
    """Stands for the informer of pods."""

    def __init__(self, *pods: core_v1.Pod) -> None:
        self.by_key = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in pods}

    def get(self, key: str) -> core_v1.Pod | None:
        return self.by_key.get(key)


class Writer:
    """Notes what is written."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self.failures: list[str] = []

    def bound(self, info: PodInfo, node: str) -> None:
        return

    def forget(self, info: PodInfo) -> None:
        return

    async def read(self, info: PodInfo) -> core_v1.Pod | None:
        return self._pods.get(info.key)

    async def failed(self, info: PodInfo, reason: str, message: str, **more: Any) -> None:
        self.failures.append(info.uid)


class Site:
    """A binding cycle whose binder fails with an error, one node, and a queue."""

    def __init__(self, error: Exception, *pods: core_v1.Pod, reserve: tuple[Any, ...] = ()) -> None:
        clock = FakeClock()
        self.pods = Pods(*pods)
        self.cluster, self.queue, self.writer = Cluster(), SchedulingQueue(clock), Writer(self.pods)
        self.cluster.set_node(node("a"))

        async def bind(info: PodInfo, node: str) -> bool:
            self.at_bind()
            raise error

        self.at_bind = lambda: None
        binder = SimpleNamespace(name="binder", bind=bind)
        profile = SimpleNamespace(
            name="default-scheduler", reserve=list(reserve), pre_bind=[], permit=[], bind=[binder], post_bind=[]
        )
        self.served: Any = SimpleNamespace(profile=profile, writer=self.writer)
        slots = asyncio.Semaphore(1)
        self.cycle = BindingCycle(self.cluster, self.queue, self.pods, [], slots, clock)  # type: ignore[arg-type]

    async def place(self, incoming: core_v1.Pod) -> None:
        """Assume a pod and try to bind it."""
        info = PodInfo(incoming)
        self.cluster.assume(info, "a")
        await self.cycle._slots.acquire()
        await self.cycle.run(self.served, QueuedPod(info, 0.0), "a")


def reborn(name: str, **labels: str) -> core_v1.Pod:
    made = pod(name, labels=labels)
    made.metadata.uid = "another"
    return made


async def test_what_is_taken_back_is_not_another_pod_of_the_same_name() -> None:
    old, new = pod("p", "1"), reborn("p")
    site = Site(REFUSED, old)

    def recreated() -> None:
        site.cluster.forget("default/p", "uid-p")
        site.pods.by_key["default/p"] = new
        site.cluster.assume(PodInfo(new), "a")

    site.at_bind = recreated
    await site.place(old)
    assert [each.uid for each in site.cluster.nodes["a"].pods.values()] == ["another"]
    assert site.cluster.is_assumed("default/p")
    assert site.queue.lengths() == (0, 0, 0) and site.writer.failures == []


async def test_a_pod_goes_back_to_the_queue_as_it_is_now() -> None:
    site = Site(REFUSED, pod("p", labels={"v": "1"}))
    changed = pod("p", labels={"v": "2"})
    site.at_bind = lambda: site.pods.by_key.update({"default/p": changed})
    await site.place(pod("p", labels={"v": "1"}))
    assert len(site.queue) == 1 and site.queue._pods["default/p"].info.labels == {"v": "2"}


@pytest.mark.parametrize("error", [REFUSED, TypeError("a bug")])
async def test_a_plugin_that_fails_to_give_back_does_not_keep_the_pod_from_being_tried_again(error: Exception) -> None:
    async def release(info: PodInfo) -> None:
        raise RuntimeError("a bug")

    plugin = SimpleNamespace(name="keeper", reserve=None, unreserve=lambda info: None, release=release)
    site = Site(error, pod("p"), reserve=(plugin,))
    await site.place(pod("p"))
    assert not site.cluster.nodes["a"].pods
    assert len(site.queue) == 1 and site.writer.failures == ["uid-p"]


async def test_a_pod_whose_claim_is_gone_is_tried_again() -> None:
    site = Site(REFUSED, pod("p"))

    async def pre_bind(info: PodInfo, node: str) -> None:
        raise StatusError(404, "NotFound", 'persistentvolumeclaims "c" not found')

    async def expect(info: PodInfo, node: str) -> None:
        return

    site.served.profile.pre_bind = [SimpleNamespace(waits=lambda info: True, pre_bind=pre_bind)]
    site.writer.expect = expect  # type: ignore[attr-defined]
    await site.place(pod("p"))
    assert len(site.queue) == 1 and site.writer.failures == ["uid-p"]


async def test_a_permit_plugin_is_waited_for_until_its_pod_is_deleted() -> None:
    waited = pod("p")
    site, asked = Site(REFUSED, waited), asyncio.Event()

    async def permit(info: PodInfo, node: str) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def expect(info: PodInfo, node: str) -> None:
        return

    site.served.profile.permit = [SimpleNamespace(permit=permit)]
    site.writer.expect = expect  # type: ignore[attr-defined]
    task = asyncio.create_task(site.place(waited))
    await asked.wait()
    del site.pods.by_key["default/p"]
    site.cycle.pod_changed(Change("DELETED", waited, waited))
    async with asyncio.timeout(30):
        await task
    assert not site.cluster.nodes["a"].pods and site.queue.lengths() == (0, 0, 0)


async def test_a_new_pod_of_the_same_name_keeps_the_events_that_came_while_it_was_being_scheduled() -> None:
    clock = FakeClock()
    queue, fit = SchedulingQueue(clock), frozenset({"NodeResourcesFit"})
    queue.add(PodInfo(pod("p")))
    old = await queue.get()
    queue.done(old)  # placed; its binding is under way
    queue.add(PodInfo(reborn("p")))
    new = await queue.get()
    queue.event(fit)
    queue.failed(old, frozenset(), error=True)
    queue.remove("default/p")
    queue.failed(new, fit)
    assert queue.lengths()[2] == 0, "the event came while it was tried: it must not wait for another one"
