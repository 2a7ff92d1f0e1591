"""The binding cycle of a placed pod, concurrent with the scheduling of others. Permit, PreBind, Bind, PostBind.

Where any of it fails everything is taken back, and the pod is retried after its back-off. A binding that failed may have
taken effect (its answer was lost): the pod is read before anything is taken back, for as long as the server cannot be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence

import msgspec

from control.scheduler import metrics
from control.scheduler.cluster import Cluster
from control.scheduler.decisions import ProfileScheduler, unreserve
from control.scheduler.event_handlers import ROOM, same_pod
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import BindingFailed, PermitPlugin, PreBindPlugin, Profile
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from control.scheduler.queued_pod import QueuedPod
from control.scheduler.writing import Writer
from kube import cancellation
from kube.api import core_v1
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.tracing import spans

log = logging.getLogger(__name__)
FORESEEN = (StatusError, BindingFailed, ExtenderError)
FIRST_PAUSE, LAST_PAUSE, READS = 1.0, 10.0, 12
"""Seconds between attempts to read a pod whose binding failed, and how many there are: a minute and a half."""


class _Preparing(msgspec.Struct, frozen=True):
    """A pod that Permit and PreBind plugins work for."""

    info: PodInfo
    plugins: Sequence[PreBindPlugin]
    deleted: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class BindingCycle:
    """Binds placed pods; `slots` bounds how many at once, but those that wait for something leave theirs meanwhile."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        pods: Informer[core_v1.Pod],
        extenders: Sequence[Extender],
        slots: asyncio.Semaphore,
        clock: Clock,
    ) -> None:
        self._cluster, self._queue, self._pods = cluster, queue, pods
        self._extenders, self._slots, self._clock = extenders, slots, clock
        self._preparing: dict[str, _Preparing] = {}
        """Pods whose binding is prepared, by UID."""

    async def run(self, served: ProfileScheduler, queued: QueuedPod, node: str) -> None:
        """Bind a pod, or requeue it; raises StatusError if even that cannot be written."""
        info = queued.info
        try:
            await self._prepare(served, info, node)
        except Exception as error:
            return await self._failed(served, queued, error)
        began = time.perf_counter()
        try:
            with spans.child("bind pod", {"k8s.node.name": node}):
                await self._bind(served.profile, info, node)
            _observe("Bind", metrics.SUCCESS, served, began)
        except Exception as error:
            _observe("Bind", metrics.ERROR, served, began)
            there = await self._bound_to(served.writer, info)
            if there != node:
                gone = isinstance(error, StatusError) and error.not_found
                return await self._failed(served, queued, error, gone=gone or bool(there))
            log.info("%s is bound to %s although the response was: %s", queued.key, node, error)
        served.writer.bound(info, node)
        metrics.attempted("scheduled", served.profile.name, queued, self._clock.monotonic())
        for plugin in served.profile.post_bind:
            plugin.post_bind(info, node)

    def pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """Wait no longer for what a deleted pod needs: upstream checks it each second."""
        if change.type == "DELETED" or change.new.metadata.deletion_timestamp is not None:
            self._abandon(change.new.metadata.uid or "")

    def _abandon(self, uid: str) -> None:
        preparing = self._preparing.get(uid)
        if preparing is not None:
            preparing.deleted.set()
            for plugin in preparing.plugins:
                if (abandon := getattr(plugin, "abandon", None)) is not None:
                    abandon(preparing.info)

    async def _bound_to(self, writer: Writer, info: PodInfo) -> str:
        """Return the node that a pod is bound to; "" if it is not bound, deleted, or unknown."""
        self._slots.release()  # others are not to wait for a server that does not answer
        try:
            pause = FIRST_PAUSE
            for _ in range(READS):
                pod = self._pods.get(info.key)
                if pod is None or not pod.spec.node_name:
                    try:
                        pod = await writer.read(info)
                    except StatusError as error:
                        log.warning("cannot determine yet whether %s is bound: %s", info.key, error)
                        await self._clock.sleep(pause)
                        pause = min(pause * 2, LAST_PAUSE)
                        continue
                return (pod.spec.node_name or "") if pod is not None and same_pod(info, pod) else ""
            return ""
        finally:
            await self._slots.acquire()

    async def _failed(
        self, served: ProfileScheduler, queued: QueuedPod, error: Exception, *, gone: bool = False
    ) -> None:
        """Revert everything, and requeue the pod unless it is `gone`: deleted, or bound to another node."""
        info = queued.info
        if not isinstance(error, FORESEEN):
            log.error("binding %s failed", queued.key, exc_info=error)
        unreserve(served.profile, info)
        for plugin in served.profile.reserve:
            if (release := getattr(plugin, "release", None)) is not None:
                try:
                    await release(info)
                except Exception:
                    log.exception("%s: plugin %s failed to unreserve", queued.key, plugin.name)
        self._cluster.forget(queued.key, info.uid)
        self._queue.event(ROOM, cause="AssignedPodDelete")
        metrics.attempted("error", served.profile.name, queued, self._clock.monotonic())
        current = self._pods.get(queued.key)
        if gone or current is None or not same_pod(info, current) or current.spec.node_name:
            served.writer.forget(info)
            return
        # What changed of the pod while it counted as placed was passed over.
        queued.info = PodInfo(current)
        self._queue.failed(queued, frozenset(), error=True)
        await served.writer.failed(queued.info, "SchedulerError", f"binding rejected: {error}")

    async def _prepare(self, served: ProfileScheduler, info: PodInfo, node: str) -> None:
        """Wait for leave (Permit) and for what has to be there first (PreBind)."""
        profile = served.profile
        waiting = [plugin for plugin in profile.pre_bind if plugin.waits(info)]
        if not waiting and not profile.permit:
            return
        self._slots.release()  # this may take minutes: others are not to wait for it
        preparing = self._preparing[info.uid] = _Preparing(info, waiting)
        current = self._pods.get(info.key)
        if current is None or not same_pod(info, current) or current.metadata.deletion_timestamp is not None:
            self._abandon(info.uid)
        try:
            await served.writer.expect(info, node)
            with _timed("Permit", served):
                for gate in profile.permit:
                    await _permitted(gate, preparing, node)
            with _timed("PreBind", served):
                for plugin in waiting:
                    await plugin.pre_bind(info, node)
        finally:
            del self._preparing[info.uid]
            await self._slots.acquire()

    async def _bind(self, profile: Profile, info: PodInfo, node: str) -> None:
        for extender in self._extenders:
            if extender.config.bind_verb and extender.interested(info):
                return await extender.bind(info, node)
        for plugin in profile.bind:
            if await plugin.bind(info, node):
                return None
        raise BindingFailed("no bind plugin took the pod")


def _observe(point: str, status: str, served: ProfileScheduler, began: float) -> None:
    """Count the duration of an extension point."""
    metrics.EXTENSION_POINT_SECONDS.observe(point, status, served.profile.name, time.perf_counter() - began)


@contextlib.contextmanager
def _timed(point: str, served: ProfileScheduler) -> Iterator[None]:
    """Count the duration of an extension point, by whether its plugins failed."""
    began, status = time.perf_counter(), metrics.ERROR
    try:
        yield
        status = metrics.SUCCESS
    finally:
        _observe(point, status, served, began)


async def _permitted(gate: PermitPlugin, preparing: _Preparing, node: str) -> None:
    """Wait for a Permit plugin, but not for a deleted pod; raises what the plugin raises, and BindingFailed."""
    permit = asyncio.ensure_future(gate.permit(preparing.info, node))
    deleted = asyncio.ensure_future(preparing.deleted.wait())
    try:
        await asyncio.wait((permit, deleted), return_when=asyncio.FIRST_COMPLETED)
        if not permit.done():
            raise BindingFailed("the pod was deleted in the meantime")
        await cancellation.as_error(permit)
    finally:
        for task in (permit, deleted):
            task.cancel()
