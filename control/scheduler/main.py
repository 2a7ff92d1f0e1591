"""The scheduler: take the most urgent pod, choose a node, assume it there, bind in the background, go on.

Choosing is synchronous and quick, so decisions never see a half-made change; binding is a request and many are under way
at once. The scheduler knows the cluster through informers only and runs wherever a client can be made.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from control.controllers.context import SharedInformers
from control.scheduler import preemption
from control.scheduler.algorithm import Algorithm
from control.scheduler.cluster import Cluster
from control.scheduler.framework import Diagnosis, Unschedulable, fit_message
from control.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.plugins.volume_binding import BindingFailed, VolumeBinding
from control.scheduler.podinfo import QueuedPod
from control.scheduler.profile import default_profile
from control.scheduler.queue import SchedulingQueue
from control.scheduler.selector_spread import DefaultSelectors
from control.scheduler.watching import ROOM, STORAGE, Watching, same_pod
from control.scheduler.writing import Writer
from kube.api import apps_v1, core_v1, policy_v1, storage_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.informer import Informer, temporary_subscriptions

log = logging.getLogger(__name__)

BINDINGS = 64
"""Bindings under way at once."""
TURN = 8
"""Pods placed before others on the loop get their turn."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`name` is the spec.schedulerName that this scheduler serves."""

    name: str = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod goes to this node."""

    node: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The pod goes nowhere yet; maybe these victims make room for it."""

    reason: str
    message: str
    victims: preemption.Victims | None = None


class Scheduler:
    """One scheduler over shared informers."""

    def __init__(self, client: Client, informers: SharedInformers, config: SchedulerConfig, clock: Clock) -> None:
        self._clock = clock
        self.recorder = EventRecorder(client, config.name, clock=clock)
        self._writer = Writer(client, self.recorder, clock)
        self._pods = informers.of(core_v1.Pod)
        self._nodes = informers.of(core_v1.Node)
        self._namespaces = informers.of(core_v1.Namespace)
        self._budgets = informers.of(policy_v1.PodDisruptionBudget)
        selectors = DefaultSelectors(
            informers.of(core_v1.Service),
            informers.of(apps_v1.ReplicaSet),
            informers.of(apps_v1.StatefulSet),
            informers.of(core_v1.ReplicationController),
        )
        self.cluster = Cluster(self._labels_of_namespace)
        self.queue = SchedulingQueue(clock)
        claims, volumes = informers.of(core_v1.PersistentVolumeClaim), informers.of(core_v1.PersistentVolume)
        classes = informers.of(storage_v1.StorageClass)
        self._storage: tuple[Informer[Any], ...] = (claims, volumes, classes)
        self._volumes = VolumeBinding(client, claims, volumes, classes)
        profile = default_profile(
            self.cluster,
            InterPodAffinity(self._labels_of_namespaces),
            PodTopologySpread(selectors.of),
            self._volumes,
        )
        self._algorithm = Algorithm(profile, self.cluster)
        self._watching = Watching(config.name, self.cluster, self.queue)
        self._slots = asyncio.Semaphore(BINDINGS)

    def _labels_of_namespace(self, name: str) -> dict[str, str]:
        found = self._namespaces.get(name)
        return found.metadata.labels if found else {}

    def _labels_of_namespaces(self) -> dict[str, dict[str, str]]:
        return {ns.metadata.name or "": ns.metadata.labels for ns in self._namespaces.list()}

    async def run(self) -> None:
        """Schedule until cancelled; the informers have to be running."""
        needed: list[Informer[Any]] = [self._nodes, self._namespaces, self._pods, self._budgets, *self._storage]
        for informer in needed:
            await informer.wait_synced()
        for informer in self._storage:
            informer.subscribe(lambda change: self.queue.event(STORAGE))
        self._watching.follow(self._pods, self._nodes)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(), name="scheduler events")
            group.create_task(self.queue.run(), name="scheduling queue")
            group.create_task(self._schedule_all(group), name="scheduling")

    async def _schedule_all(self, group: asyncio.TaskGroup) -> None:
        turn = 0
        while True:
            queued = await self.queue.get()
            await self._slots.acquire()
            group.create_task(self._carry_out(queued, self._decide(queued)), name=f"schedule {queued.key}")
            turn += 1
            if turn % TURN == 0:
                await asyncio.sleep(0)

    def _decide(self, queued: QueuedPod) -> Placed | Failed:
        """Choose a node and count the pod there, or put it back; all in one go, so that nothing comes between."""
        info = queued.info
        try:
            node = self._algorithm.place(info)
        except Unschedulable as refusal:
            return self._refuse(queued, refusal.diagnosis)
        except Exception as error:
            log.exception("scheduling %s failed", info.key)
            self.queue.failed(queued, frozenset(), error=True)
            return Failed("SchedulerError", str(error))
        self.cluster.withdraw(info.key)
        self._volumes.reserve(info, self.cluster.nodes[node].node)
        self.cluster.assume(info, node)
        self.queue.done(queued)
        return Placed(node)

    def _refuse(self, queued: QueuedPod, diagnosis: Diagnosis) -> Failed:
        info = queued.info
        message = fit_message(diagnosis)
        victims: preemption.Victims | None = None
        if diagnosis.nodes:
            why = preemption.not_eligible(info, self.cluster)
            if not why:
                victims = preemption.find(info, diagnosis, self._algorithm, self.cluster, self._budgets.list)
                why = "" if victims else preemption.explain(diagnosis)
            if victims is not None:
                self.cluster.nominate(info, victims.node)
            else:
                message += f" no new claims to deallocate, preemption: {why}"
        self.queue.failed(queued, diagnosis.plugins)
        return Failed("Unschedulable", message, victims)

    async def _carry_out(self, queued: QueuedPod, decision: Placed | Failed) -> None:
        """Write a decision to the API."""
        try:
            if isinstance(decision, Placed):
                await self._bind(queued, decision.node)
            elif same_pod(queued.info, self._pods.get(queued.key)):
                nominated = decision.victims.node if decision.victims else None
                await self._writer.failed(queued.info, decision.reason, decision.message, nominated=nominated)
                if decision.victims is not None:
                    await self._writer.evict(decision.victims, queued.info)
        except StatusError as error:
            if not error.not_found:
                log.warning("scheduling %s: %s", queued.key, error)
        finally:
            self._slots.release()

    async def _bind(self, queued: QueuedPod, node: str) -> None:
        try:
            if self._volumes.has_reserved(queued.key):
                self._slots.release()  # a provisioner may take minutes: others are not to wait for it
                try:
                    await self._volumes.pre_bind(queued.info, node)
                finally:
                    await self._slots.acquire()
            await self._writer.bind(queued.info, node)
        except (StatusError, BindingFailed) as error:
            self.cluster.forget(queued.key)
            self.queue.event(ROOM)
            gone = isinstance(error, StatusError) and error.not_found
            if gone or not same_pod(queued.info, self._pods.get(queued.key)):
                return
            self.queue.failed(queued, frozenset(), error=True)
            await self._writer.failed(queued.info, "SchedulerError", f"binding rejected: {error}")
        finally:
            self._volumes.unreserve(queued.key)


async def run(
    client: Client,
    config: SchedulerConfig | None = None,
    clock: Clock = SYSTEM,
    informers: SharedInformers | None = None,
) -> None:
    """Run a scheduler until cancelled, on informers of its own or on those of somebody who runs them."""
    with temporary_subscriptions():
        shared = informers or SharedInformers(client, clock)
        scheduler = Scheduler(client, shared, config or SchedulerConfig(), clock)
        async with asyncio.TaskGroup() as group:
            if informers is None:
                group.create_task(shared.run(), name="scheduler informers")
            group.create_task(scheduler.run(), name="scheduler")
