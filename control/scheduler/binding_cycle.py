"""The binding cycle: what becomes of a placed pod, beside the placing of others. Permit, PreBind, Bind, PostBind.

Where any of it fails everything is taken back, and the pod is tried again after its back-off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from control.scheduler.cluster import Cluster
from control.scheduler.decisions import Served, unreserve
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import BindingFailed, Profile
from control.scheduler.podinfo import PodInfo, QueuedPod
from control.scheduler.queue import SchedulingQueue
from control.scheduler.watching import ROOM, same_pod
from kube.api import core_v1
from kube.errors import StatusError
from kube.informer import Informer


class BindingCycle:
    """Binds placed pods; `slots` bounds how many at once, but those that wait for something leave theirs meanwhile."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        pods: Informer[core_v1.Pod],
        extenders: Sequence[Extender],
        slots: asyncio.Semaphore,
    ) -> None:
        self._cluster, self._queue, self._pods = cluster, queue, pods
        self._extenders, self._slots = extenders, slots

    async def run(self, served: Served, queued: QueuedPod, node: str) -> None:
        """Bind a pod, or put it back; raises StatusError where even that cannot be told."""
        info = queued.info
        try:
            await self._prepare(served, info, node)
            await self._bind(served.profile, info, node)
            served.writer.bound(info, node)
            for plugin in served.profile.post_bind:
                plugin.post_bind(info, node)
        except (StatusError, BindingFailed, ExtenderError) as error:
            await self._failed(served, queued, error)

    async def _failed(self, served: Served, queued: QueuedPod, error: Exception) -> None:
        info = queued.info
        unreserve(served.profile, info)
        for plugin in served.profile.reserve:
            if (release := getattr(plugin, "release", None)) is not None:
                await release(info)
        self._cluster.forget(queued.key)
        self._queue.event(ROOM)
        gone = isinstance(error, StatusError) and error.not_found
        if gone or not same_pod(info, self._pods.get(queued.key)):
            served.writer.forget(info)
            return
        self._queue.failed(queued, frozenset(), error=True)
        await served.writer.failed(info, "SchedulerError", f"binding rejected: {error}")

    async def _prepare(self, served: Served, info: PodInfo, node: str) -> None:
        """Wait for leave (Permit) and for what has to be there first (PreBind)."""
        profile = served.profile
        waiting = [plugin for plugin in profile.pre_bind if plugin.waits(info)]
        if not waiting and not profile.permit:
            return
        self._slots.release()  # this may take minutes: others are not to wait for it
        try:
            await served.writer.expect(info, node)
            for gate in profile.permit:
                await gate.permit(info, node)
            for plugin in waiting:
                await plugin.pre_bind(info, node)
        finally:
            await self._slots.acquire()

    async def _bind(self, profile: Profile, info: PodInfo, node: str) -> None:
        for extender in self._extenders:
            if extender.config.bind_verb and extender.interested(info):
                return await extender.bind(info, node)
        for plugin in profile.bind:
            if await plugin.bind(info, node):
                return None
        raise BindingFailed("no bind plugin took the pod")
