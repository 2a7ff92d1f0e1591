"""The scheduler: take the most urgent pod, choose a node, assume it there, bind in the background, continue.

Choosing is synchronous and quick, so decisions never see a half-made change; where plugins have to work for longer they do so
beside, and the pod is decided again. Binding is a request and many are under way at once. The scheduler knows the cluster
through informers only and runs wherever a client can be made.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from control.event_loop import offload
from control.scheduler import attempt_spans, metrics
from control.scheduler.algorithm import Algorithm
from control.scheduler.binding_cycle import BindingCycle
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.configuration import DEFAULT_NAME, SchedulerConfig
from control.scheduler.decisions import Deferred, Failed, Placed, ProfileScheduler
from control.scheduler.deferred_pods import DeferredPods
from control.scheduler.devices.check import NAME as DEVICES_PLUGIN
from control.scheduler.event_handlers import STORAGE, EventHandlers, same_pod
from control.scheduler.extender import Extender
from control.scheduler.framework import PluginError, Profile
from control.scheduler.gauges import Gauges
from control.scheduler.listed_kinds import ListedKinds
from control.scheduler.podinfo import PodInfo
from control.scheduler.profile import PluginContext, build
from control.scheduler.queue import SchedulingQueue
from control.scheduler.queued_pod import QueuedPod
from control.scheduler.scheduling_cycle import SchedulingCycle
from control.scheduler.selector_spread import DefaultSelectors
from control.scheduler.shared_plugins import SharedPlugins
from control.scheduler.writing import Writer
from kube import cancellation
from kube.api import apps_v1, core_v1, policy_v1, storage_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.informer import Change, temporary_subscriptions
from kube.journal import Journal
from kube.shared_informers import SharedInformers, wait_until_listed
from kube.tracing.tracer import Tracer

log = logging.getLogger(__name__)

Factory = Callable[[Mapping[str, Any]], Any]
"""Makes a plugin from its arguments."""
BINDINGS = 64
"""Bindings under way at once."""
PODS_PER_YIELD, YIELD_SECONDS = 8, 0.01
"""Pods placed, and seconds that pass, before the scheduler yields to the event loop."""
TERMS_SECONDS = 30.0
"""Seconds at most for which the scheduler waits at its start until large affinity of pods on nodes has been read."""
EVENT_WORKERS = 16
"""Events being sent at once: each waits for the disk, and there are as many of them as bindings."""


class Scheduler:
    """All profiles over shared informers, one cache and one queue. `extra` are factories of plugins from elsewhere."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        config: SchedulerConfig,
        clock: Clock,
        extra: Mapping[str, Factory] | None = None,
        tracer: Tracer | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._clock, self._tracer = clock, tracer
        self._pods = informers.of(core_v1.Pod)
        self._nodes = informers.of(core_v1.Node)
        self._namespaces = informers.of(core_v1.Namespace)
        budgets = informers.of(policy_v1.PodDisruptionBudget)
        self._budgets = Budgets(lambda: budgets.synced)
        budgets.subscribe(self._budgets.changed)
        selectors = DefaultSelectors(
            informers.of(core_v1.Service),
            informers.of(apps_v1.ReplicaSet),
            informers.of(apps_v1.StatefulSet),
            informers.of(core_v1.ReplicationController),
        )
        self.cluster = Cluster(self._labels_of_namespace)
        self.queue = SchedulingQueue(clock, config.first_backoff, config.last_backoff)
        given = (p.args[DEVICES_PLUGIN] for p in config.profiles if DEVICES_PLUGIN in p.args)
        shared = SharedPlugins(client, informers, clock, next(given, None))
        self._storage, self._devices, self._attachments = shared.storage, shared.devices, shared.attachments
        storage = (*shared.storage, shared.attachments)  # volumes that are still attached count towards limits
        self._listed_kinds = ListedKinds(storage, shared.device_kinds, (budgets,))
        plugin_context = PluginContext(
            self.cluster,
            selectors.of,
            {plugin.name: plugin for plugin in shared.plugins},
            extra or {},
            frozenset().union(*(extender.ignored for extender in config.extenders)),
            lambda resource: self._devices.extended.class_of(resource) is not None,
        )
        self._served: dict[str, ProfileScheduler] = {}
        self._recorders: list[EventRecorder] = []
        for one in config.profiles:
            profile = build(one, plugin_context, config.percentage)
            recorder = EventRecorder(client, one.name, clock=clock, workers=EVENT_WORKERS, journal=journal)
            self._recorders.append(recorder)
            self._served[one.name] = ProfileScheduler(
                profile, Algorithm(profile, self.cluster), Writer(client, recorder, clock)
            )
        self._extenders = [Extender(extender) for extender in config.extenders]
        gates = {name: functools.partial(_admitted, served.profile) for name, served in self._served.items()}
        self._event_handlers = EventHandlers(gates, self.cluster, self.queue)
        self._slots = asyncio.Semaphore(BINDINGS)
        self._cycle = SchedulingCycle(self.cluster, self.queue, self._budgets, self._of, clock, journal)
        self._deferred_pods = DeferredPods(self._decide, self._cycle.failed, self._waits, self.queue, self._slots)
        self._gauges = Gauges(self.queue, self.cluster, self._event_handlers, self._pods)
        self._binding = BindingCycle(self.cluster, self.queue, self._pods, self._extenders, self._slots, clock)

    def _labels_of_namespace(self, name: str) -> dict[str, str]:
        found = self._namespaces.get(name)
        return found.metadata.labels if found else {}

    def _namespace_changed(self, change: Change[core_v1.Namespace]) -> None:
        if change.old is None or change.type == "DELETED" or change.old.metadata.labels != change.new.metadata.labels:
            self.cluster.namespaces_changed()

    def _of(self, info: PodInfo) -> ProfileScheduler:
        return self._served[info.pod.spec.scheduler_name or DEFAULT_NAME]

    async def run(self) -> None:
        """Schedule until cancelled; the informers have to be running."""
        await wait_until_listed("scheduler", (self._nodes, self._namespaces, self._pods), self._clock)
        await self._listed_kinds.wait(self._clock)
        self.follow()
        try:
            with self._gauges.shown():
                await self._run()
        finally:
            for extender in self._extenders:
                await extender.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders:
                cancellation.start(group, recorder.run, "scheduler events")
            cancellation.start(group, self.queue.run, "scheduling queue")
            cancellation.start(group, self.cluster.existing_affinity.unread_terms.run, "scheduler affinity terms")
            cancellation.start(group, lambda: self._schedule_all(group), "scheduling")

    def follow(self) -> None:
        """Keep cache and queue in step with the informers from now on."""
        for informer in self._storage:
            informer.subscribe(self._storage_changed)
        self._attachments.subscribe(self._attachment_changed)
        self._namespaces.subscribe(self._namespace_changed)
        handlers = self._event_handlers
        self._devices.follow(handlers.claim_changed, handlers.supply_changed, handlers.resources_changed)
        handlers.follow(self._pods, self._nodes)
        self._pods.subscribe(self._binding.pod_changed)

    def _storage_changed(self, change: Change[Any]) -> None:
        self.queue.event(STORAGE, cause=f"{type(change.new).__name__}{metrics.ACTIONS[change.type]}")

    def _attachment_changed(self, change: Change[storage_v1.VolumeAttachment]) -> None:
        if change.type == "DELETED":
            self.queue.event(STORAGE, cause="VolumeAttachmentDelete")

    async def _schedule_all(self, group: asyncio.TaskGroup) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMS_SECONDS):
                await self.cluster.existing_affinity.unread_terms.settled()
        loop = asyncio.get_running_loop()
        placed, began = 0, loop.time()
        while True:
            queued = await self.queue.get()
            await self._slots.acquire()
            if self._tracer is not None:
                attempt_spans.begin(self._tracer, queued)
            if queued.info.size >= offload.LARGE:
                await self._prepare(queued)
            decision = await self._decide(queued)
            if isinstance(decision, Deferred):
                self._slots.release()
                group.create_task(self._decide_later(queued, decision), name=f"decide about {queued.key}")
            else:
                group.create_task(self._carry_out(queued, decision), name=f"schedule {queued.key}")
            placed += 1
            if isinstance(decision, Deferred) or placed == PODS_PER_YIELD or loop.time() - began > YIELD_SECONDS:
                await asyncio.sleep(0)
                placed, began = 0, loop.time()

    async def _prepare(self, queued: QueuedPod) -> None:
        """Have a large pod made ready beside the loop; what is wrong with it shows when it is placed."""
        with contextlib.suppress(Exception):
            await offload.complete(queued.info.namespace, queued.info.prepare)

    async def _decide(self, queued: QueuedPod) -> Placed | Failed | Deferred:
        try:
            self._listed_kinds.check(queued.info.pod)
        except PluginError as error:
            return self._cycle.failed(queued, error)
        asked = [extender for extender in self._extenders if extender.interested(queued.info)]
        return await self._cycle.decide_with(asked, queued) if asked else self._cycle.decide(queued)

    async def _decide_later(self, queued: QueuedPod, deferred: Deferred) -> None:
        decision = await self._deferred_pods.decided(queued, deferred)
        if decision is not None:
            await self._carry_out(queued, decision)

    def _waits(self, info: PodInfo) -> bool:
        """True while a pod is there that is to be placed."""
        pod = self._pods.get(info.key)
        return (
            pod is not None and same_pod(info, pod) and not pod.spec.node_name and not pod.metadata.deletion_timestamp
        )

    # -- doing ------------------------------------------------------------------------------------------------------
    async def _carry_out(self, queued: QueuedPod, decision: Placed | Failed) -> None:
        """Write a decision to the API."""
        writer = self._of(queued.info).writer
        try:
            with attempt_spans.carried_out(queued, decision):
                if isinstance(decision, Placed):
                    await self._binding.run(self._of(queued.info), queued, decision.node)
                elif same_pod(queued.info, self._pods.get(queued.key)):
                    await self._report_and_preempt(writer, queued, decision)
        except StatusError as error:
            if not error.not_found:
                log.warning("scheduling %s: %s", queued.key, error)
        finally:
            self._slots.release()

    async def _report_and_preempt(self, writer: Writer, queued: QueuedPod, failed: Failed) -> None:
        """Report why a pod was not placed, and evict its victims; where that fails the pod is retried after its back-off.

        No victim leaves then, so no event would wake the pod. A failed report prevents no eviction.
        """
        nominated = failed.victims.node if failed.victims else "" if failed.hopeless else None
        try:
            try:
                await writer.failed(queued.info, failed.reason, failed.message, nominated=nominated)
            except StatusError as error:
                if error.not_found or error.replaced:  # the pod of the queue is gone, or is not
                    raise
                log.warning("reporting that %s is not scheduled: %s", queued.key, error)
            for other in failed.displaced:
                await writer.denominate(other)
            for action in failed.actions:
                await action()
            if failed.victims is not None:
                await writer.evict(failed.victims, queued.info)
        except StatusError:
            self.queue.retry(queued)
            raise


def _admitted(profile: Profile, pod: core_v1.Pod) -> bool:
    return not any(plugin.pre_enqueue(pod) for plugin in profile.pre_enqueue)


async def run(
    client: Client,
    config: SchedulerConfig | None = None,
    clock: Clock = SYSTEM,
    informers: SharedInformers | None = None,
    extra: Mapping[str, Factory] | None = None,
    tracer: Tracer | None = None,
    journal: Journal | None = None,
) -> None:
    """Run a scheduler until cancelled, on informers of its own or on those of the caller.

    `extra` are factories of plugins from elsewhere, by the names that a configuration switches them on with.
    """
    with temporary_subscriptions():
        shared = informers or SharedInformers(client, clock)
        scheduler = Scheduler(client, shared, config or SchedulerConfig(), clock, extra, tracer, journal)
        async with asyncio.TaskGroup() as group:
            if informers is None:
                cancellation.start(group, shared.run, "scheduler informers")
            cancellation.start(group, scheduler.run, "scheduler")
