"""The scheduler: take the most urgent pod, choose a node, assume it there, bind in the background, go on.

Choosing is synchronous and quick, so decisions never see a half-made change; binding is a request and many are under way
at once. The scheduler knows the cluster through informers only and runs wherever a client can be made.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from control.controllers.context import SharedInformers
from control.scheduler import asking, preemption
from control.scheduler.algorithm import Algorithm
from control.scheduler.cluster import Cluster
from control.scheduler.configuration import DEFAULT_NAME, SchedulerConfig
from control.scheduler.extender import NAME as EXTENDER
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import BindingFailed, Diagnosis, Profile, Unschedulable, fit_message
from control.scheduler.plugins.default_binder import DefaultBinder
from control.scheduler.plugins.volume_binding import VolumeBinding
from control.scheduler.plugins.volume_limits import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from control.scheduler.podinfo import PodInfo, QueuedPod
from control.scheduler.profile import Surroundings, build
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

Factory = Callable[[Mapping[str, Any]], Any]
"""Makes a plugin from its arguments."""
BINDINGS = 64
"""Bindings under way at once."""
TURN = 8
"""Pods placed before others on the loop get their turn."""
TRIES = 3
"""How often extenders are asked about one pod, where the cluster changes meanwhile."""
EVENT_WORKERS = 16
"""Events being sent at once: each waits for the disk, and there are as many of them as bindings."""


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
    hopeless: bool = False
    """Nobody's eviction would help: a nomination from before is void."""
    displaced: tuple[PodInfo, ...] = ()
    """Less important pods that had been nominated for the node."""


@dataclass(frozen=True, slots=True)
class Served:
    """One scheduler name: its plugins, how it chooses, and what it writes."""

    profile: Profile
    algorithm: Algorithm
    writer: Writer


class Scheduler:
    """All profiles over shared informers, one cache and one queue. `extra` are factories of plugins from elsewhere."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        config: SchedulerConfig,
        clock: Clock,
        extra: Mapping[str, Factory] | None = None,
    ) -> None:
        self._clock = clock
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
        self.queue = SchedulingQueue(clock, config.first_backoff, config.last_backoff)
        claims, volumes = informers.of(core_v1.PersistentVolumeClaim), informers.of(core_v1.PersistentVolume)
        classes, csi_nodes = informers.of(storage_v1.StorageClass), informers.of(storage_v1.CSINode)
        self._storage: tuple[Informer[Any], ...] = (claims, volumes, classes, csi_nodes)
        shared: list[Any] = [
            VolumeRestrictions(claims),
            NodeVolumeLimits(claims, volumes, classes, csi_nodes),
            VolumeBinding(client, claims, volumes, classes),
            VolumeZone(claims, volumes),
            DefaultBinder(client),
        ]
        surroundings = Surroundings(
            self.cluster,
            self._labels_of_namespaces,
            selectors.of,
            {plugin.name: plugin for plugin in shared},
            extra or {},
            frozenset().union(*(extender.ignored for extender in config.extenders)),
        )
        self._served: dict[str, Served] = {}
        self._recorders: list[EventRecorder] = []
        for one in config.profiles:
            profile = build(one, surroundings, config.percentage)
            recorder = EventRecorder(client, one.name, clock=clock, workers=EVENT_WORKERS)
            self._recorders.append(recorder)
            self._served[one.name] = Served(profile, Algorithm(profile, self.cluster), Writer(client, recorder, clock))
        self._extenders = [Extender(extender) for extender in config.extenders]
        gates = {name: functools.partial(_admitted, served.profile) for name, served in self._served.items()}
        self._watching = Watching(gates, self.cluster, self.queue)
        self._slots = asyncio.Semaphore(BINDINGS)

    def _labels_of_namespace(self, name: str) -> dict[str, str]:
        found = self._namespaces.get(name)
        return found.metadata.labels if found else {}

    def _labels_of_namespaces(self) -> dict[str, dict[str, str]]:
        return {ns.metadata.name or "": ns.metadata.labels for ns in self._namespaces.list()}

    def _of(self, info: PodInfo) -> Served:
        return self._served[info.pod.spec.scheduler_name or DEFAULT_NAME]

    async def run(self) -> None:
        """Schedule until cancelled; the informers have to be running."""
        needed: list[Informer[Any]] = [self._nodes, self._namespaces, self._pods, self._budgets, *self._storage]
        for informer in needed:
            await informer.wait_synced()
        for informer in self._storage:
            informer.subscribe(lambda change: self.queue.event(STORAGE))
        self._watching.follow(self._pods, self._nodes)
        try:
            async with asyncio.TaskGroup() as group:
                for recorder in self._recorders:
                    group.create_task(recorder.run(), name="scheduler events")
                group.create_task(self.queue.run(), name="scheduling queue")
                group.create_task(self._schedule_all(group), name="scheduling")
        finally:
            for extender in self._extenders:
                await extender.close()

    async def _schedule_all(self, group: asyncio.TaskGroup) -> None:
        turn = 0
        while True:
            queued = await self.queue.get()
            await self._slots.acquire()
            asked = [extender for extender in self._extenders if extender.interested(queued.info)]
            decision = await self._decide_with(asked, queued) if asked else self._decide(queued)
            group.create_task(self._carry_out(queued, decision), name=f"schedule {queued.key}")
            turn += 1
            if turn % TURN == 0:
                await asyncio.sleep(0)

    # -- deciding ---------------------------------------------------------------------------------------------------
    def _decide(self, queued: QueuedPod) -> Placed | Failed:
        """Choose a node and count the pod there, or put it back; all in one go, so that nothing comes between."""
        served = self._of(queued.info)
        try:
            return self._assume(queued, served, served.algorithm.place(queued.info))
        except Unschedulable as refusal:
            victims, why = self._room(served, queued.info, refusal.diagnosis)
            return self._refuse(queued, refusal.diagnosis, victims, why)
        except Exception as error:
            return self._failed(queued, error)

    async def _decide_with(self, extenders: Sequence[Extender], queued: QueuedPod) -> Placed | Failed:
        """Choose a node as extenders have it. The cluster may change while they are asked, so the node is checked again."""
        info, served = queued.info, self._of(queued.info)
        try:
            for _ in range(TRIES):
                node = await asking.place(info, served.algorithm, extenders)
                found = self.cluster.nodes.get(node)
                if found is not None and served.algorithm.fits_with_all(info, found):
                    return self._assume(queued, served, node)
            raise ExtenderError("the node that was chosen no longer fits")
        except Unschedulable as refusal:
            victims, why = await self._room_with(extenders, served, info, refusal.diagnosis)
            return self._refuse(queued, refusal.diagnosis, victims, why)
        except Exception as error:
            return self._failed(queued, error)

    def _assume(self, queued: QueuedPod, served: Served, node: str) -> Placed:
        info = queued.info
        for plugin in served.profile.reserve:
            try:
                plugin.reserve(info, self.cluster.nodes[node].node)
            except BaseException:
                self._unreserve(served, info)
                raise
        self.cluster.withdraw(info.key)
        self.cluster.assume(info, node)
        self.queue.done(queued)
        return Placed(node)

    def _unreserve(self, served: Served, info: PodInfo) -> None:
        for plugin in reversed(served.profile.reserve):
            plugin.unreserve(info)

    def _failed(self, queued: QueuedPod, error: Exception) -> Failed:
        if isinstance(error, ExtenderError | BindingFailed):
            log.warning("scheduling %s: %s", queued.key, error)
        else:
            log.error("scheduling %s failed", queued.key, exc_info=error)
        self.queue.failed(queued, frozenset(), error=True)
        return Failed("SchedulerError", str(error))

    def _room(self, served: Served, info: PodInfo, diagnosis: Diagnosis) -> tuple[preemption.Victims | None, str]:
        """Return whose eviction would make room, or why there is nobody."""
        if not served.profile.preempts or not diagnosis.nodes:
            return None, ""
        why = preemption.not_eligible(info, self.cluster)
        if why:
            return None, why
        victims = preemption.find(info, diagnosis, served.algorithm, self.cluster, self._budgets.list)
        return victims, "" if victims else preemption.explain(diagnosis)

    async def _room_with(
        self, extenders: Sequence[Extender], served: Served, info: PodInfo, diagnosis: Diagnosis
    ) -> tuple[preemption.Victims | None, str]:
        """The same, where extenders have a say in it."""
        if not any(extender.config.preempt_verb for extender in extenders):
            return self._room(served, info, diagnosis)
        if not served.profile.preempts or not diagnosis.nodes:
            return None, ""
        why = preemption.not_eligible(info, self.cluster)
        if why:
            return None, why
        found = preemption.candidates(info, diagnosis, served.algorithm, self.cluster, self._budgets.list)
        try:
            victims = preemption.best(await asking.agreed(info, found, extenders))
        except ExtenderError as error:
            return None, str(error)
        return victims, "" if victims else preemption.explain(diagnosis)

    def _refuse(self, queued: QueuedPod, diagnosis: Diagnosis, victims: preemption.Victims | None, why: str) -> Failed:
        message, info = fit_message(diagnosis), queued.info
        hopeless = bool(why) and not why.startswith(preemption.NOT_ELIGIBLE)
        displaced: tuple[PodInfo, ...] = ()
        if victims is not None:
            nominated = self.cluster.nominated.get(victims.node, {})
            displaced = tuple(p for p in nominated.values() if p.priority < info.priority)
            for other in displaced:
                self.cluster.withdraw(other.key)
            self.cluster.nominate(info, victims.node)
        elif why:
            message += f" no new claims to deallocate, preemption: {why}"
        if hopeless:
            self.cluster.withdraw(info.key)
        # What an extender has said may change without any sign of it here: every change is worth a try.
        plugins = diagnosis.plugins
        self.queue.failed(queued, frozenset() if EXTENDER in plugins else plugins)
        return Failed("Unschedulable", message, victims, hopeless, displaced)

    # -- doing ------------------------------------------------------------------------------------------------------
    async def _carry_out(self, queued: QueuedPod, decision: Placed | Failed) -> None:
        """Write a decision to the API."""
        writer = self._of(queued.info).writer
        try:
            if isinstance(decision, Placed):
                await self._bind(queued, decision.node)
            elif same_pod(queued.info, self._pods.get(queued.key)):
                nominated = decision.victims.node if decision.victims else "" if decision.hopeless else None
                await writer.failed(queued.info, decision.reason, decision.message, nominated=nominated)
                for other in decision.displaced:
                    await writer.denominate(other)
                if decision.victims is not None:
                    await writer.evict(decision.victims, queued.info)
        except StatusError as error:
            if not error.not_found:
                log.warning("scheduling %s: %s", queued.key, error)
        finally:
            self._slots.release()

    async def _bind(self, queued: QueuedPod, node: str) -> None:
        info, served = queued.info, self._of(queued.info)
        try:
            await self._prepare(served.profile, info, node)
            await self._bound(served.profile, info, node)
            served.writer.bound(info, node)
            for plugin in served.profile.post_bind:
                plugin.post_bind(info, node)
        except (StatusError, BindingFailed, ExtenderError) as error:
            self._unreserve(served, info)
            self.cluster.forget(queued.key)
            self.queue.event(ROOM)
            gone = isinstance(error, StatusError) and error.not_found
            if gone or not same_pod(info, self._pods.get(queued.key)):
                return
            self.queue.failed(queued, frozenset(), error=True)
            await served.writer.failed(info, "SchedulerError", f"binding rejected: {error}")

    async def _prepare(self, profile: Profile, info: PodInfo, node: str) -> None:
        """Wait for leave (Permit) and for what has to be there first (PreBind)."""
        waiting = [plugin for plugin in profile.pre_bind if plugin.waits(info)]
        if not waiting and not profile.permit:
            return
        self._slots.release()  # this may take minutes: others are not to wait for it
        try:
            for gate in profile.permit:
                await gate.permit(info, node)
            for plugin in waiting:
                await plugin.pre_bind(info, node)
        finally:
            await self._slots.acquire()

    async def _bound(self, profile: Profile, info: PodInfo, node: str) -> None:
        for extender in self._extenders:
            if extender.config.bind_verb and extender.interested(info):
                return await extender.bind(info, node)
        for plugin in profile.bind:
            if await plugin.bind(info, node):
                return None
        raise BindingFailed("no bind plugin took the pod")


def _admitted(profile: Profile, pod: core_v1.Pod) -> bool:
    return not any(plugin.pre_enqueue(pod) for plugin in profile.pre_enqueue)


async def run(
    client: Client,
    config: SchedulerConfig | None = None,
    clock: Clock = SYSTEM,
    informers: SharedInformers | None = None,
    extra: Mapping[str, Factory] | None = None,
) -> None:
    """Run a scheduler until cancelled, on informers of its own or on those of somebody who runs them.

    `extra` are factories of plugins from elsewhere, by the names that a configuration switches them on with.
    """
    with temporary_subscriptions():
        shared = informers or SharedInformers(client, clock)
        scheduler = Scheduler(client, shared, config or SchedulerConfig(), clock, extra)
        async with asyncio.TaskGroup() as group:
            if informers is None:
                group.create_task(shared.run(), name="scheduler informers")
            group.create_task(scheduler.run(), name="scheduler")
