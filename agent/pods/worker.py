"""One pod's worker: a serial task that syncs the pod with its spec until nothing of it is left.

The worker sleeps until it is woken (wakeup.py) by anything that may matter: a new spec, a container's exit, a probe's outcome,
a changed Secret, a timer. It reads what events named again and runs a sync (steps/sync.py) or the pod's termination
(steps/termination.py) in a child task: so the termination can cancel a pull or a hook that is under way, and the status stays
current meanwhile.

A restart of the agent is the same as a new spec for a pod whose containers already run (state.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from agent.lifecycle import End
from agent.lifecycle.resize import PendingResize
from agent.pods.context import PodContext
from agent.pods.dependencies import PodDependencies
from agent.pods.references import references_of
from agent.pods.reporter import PodReporter
from agent.pods.state import PodState
from agent.pods.steps.records import read_exits, replace_records
from agent.pods.steps.sync import sync
from agent.pods.steps.termination import grace_seconds, terminate_pod
from agent.pods.wakeup import WakeUp
from agent.records import PodRuntime
from cri.errors import CRIError
from kube.api import core_v1
from kube.cancellation import AwaitedCancelled

log = logging.getLogger(__name__)

RUNTIME_SECONDS = 0.5
"""Delay of the next try after a failed call to the runtime."""
UNEXPECTED_SECONDS = 5.0
"""Delay of the next try after an unexpected error."""


class PodWorker:
    """The worker of one pod UID. `run` returns when nothing of the pod is left on the node or in the API."""

    def __init__(
        self,
        state: PodState,
        deps: PodDependencies,
        *,
        pending_resize: Callable[[core_v1.Pod], PendingResize | None],
        size_changed: Callable[[], None],
        released: Callable[[], None],
    ) -> None:
        self.state, self._deps = state, deps
        self.reporter = PodReporter(state, deps)
        self._wakeup = WakeUp(deps.clock, state.uid)
        self._context = PodContext(state, deps, self.reporter, self._wakeup, pending_resize, size_changed, released)
        self.request_sync = self._wakeup.request_sync
        self._unread: set[str] = set()
        """IDs of containers and sandboxes to read again."""
        self._child: asyncio.Task[None] | None = None
        self._terminating_within: int | None = None
        """The grace period of the termination that is under way."""
        self._created = deps.clock.monotonic()
        self._syncs = 0
        self._updated = False
        """The spec was changed since the last sync."""

    # -- events ---------------------------------------------------------------------------------------------------
    def update(self, pod: core_v1.Pod) -> None:
        """Take over the API's newest version of the pod."""
        before, self.state.pod = self.state.pod.metadata, pod
        self._updated |= before.generation != pod.metadata.generation
        if (before.labels, before.annotations) != (pod.metadata.labels, pod.metadata.annotations):
            self.state.volumes.refresh_at = 0.0  # downward API volumes may show them
        self.request_sync()

    def update_mirror(self, mirror: core_v1.Pod | None) -> None:
        """Take over the API's mirror of a static pod, None when it is gone."""
        self.state.mirror = mirror
        self.request_sync()

    def source_removed(self) -> None:
        """Terminate the pod: its object is gone from the API, or its manifest from this machine."""
        self.state.in_source = False
        self.request_sync()

    def kill(self, end: End, grace: int | None = None) -> None:
        """Terminate the pod for a reason of the node's (eviction, shutdown)."""
        if self.state.termination.cause is None:
            self.state.termination.cause, self.state.termination.grace = end, grace
        self.request_sync()

    def container_changed(self, container_id: str) -> None:
        """Read a container or sandbox of the pod again: the runtime sent an event."""
        self._unread.add(container_id)
        self._wakeup.wake()

    def replace_runtime(self, runtime: PodRuntime) -> None:
        """Take over a listing of the runtime: it repairs what events missed."""
        if self._child is None and runtime != self.state.runtime:
            self._unread |= replace_records(self._context, runtime)
            self.request_sync()

    def references_changed(self) -> None:
        """Refresh the volumes and retry what failed: a ConfigMap or Secret that the pod names changed."""
        self.state.volumes.config_generation += 1
        self.state.volumes.refresh_at = 0.0
        self.state.back_off.retry_at.clear()
        self.request_sync()

    # -- the task -------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Work until the pod is gone."""
        state, deps = self.state, self._deps
        deps.references.track(state.uid, references_of(state.pod))
        try:
            while True:
                await self._wakeup.wait()
                if self._unread and not state.terminating:
                    unread, self._unread = self._unread, set()
                    await read_exits(self._context, unread)
                    self._wakeup.sync_requested = True
                if self._child is not None and self._child.done():
                    self._handle_result()
                if state.terminating:
                    if state.termination.removed:
                        return
                    await self._terminate()
                elif self._wakeup.sync_requested and self._child is None and not state.preempted:
                    self._start_child(self._timed_sync(), "sync")
                elif self._wakeup.sync_requested:
                    self.reporter.publish_during_sync()
        finally:
            self._wakeup.cancel_timer()
            self.reporter.cancel_late()
            await self._cancel_child()
            deps.prober.stop(state.uid)
            deps.references.forget(state.uid)
            deps.images.forget(state.uid)

    async def _terminate(self) -> None:
        """Start the pod's termination; start it over with less time when the grace period was shortened."""
        grace = grace_seconds(self._context)
        if self._child is not None:
            if self._terminating_within is not None and grace >= self._terminating_within:
                return
            await self._cancel_child()
            self.state.runtime_uncertain = True
        if self.state.termination.finished and not self.state.deleted:
            self.reporter.publish()  # a mirror pod may have been created that has no status yet
            return
        self._terminating_within = grace
        self._start_child(terminate_pod(self._context, grace), "end")

    def _start_child(self, work: Coroutine[None, None, None], what: str) -> None:
        self._wakeup.sync_requested = False
        self._wakeup.cancel_timer()
        metadata = self.state.pod.metadata
        self._child = asyncio.create_task(work, name=f"{what} pod {metadata.namespace}/{metadata.name}")
        self._child.add_done_callback(lambda _: self._wakeup.wake())

    async def _cancel_child(self) -> None:
        if self._child is not None:
            self._child.cancel()
            await asyncio.gather(self._child, return_exceptions=True)
            self._child = None

    def _handle_result(self) -> None:
        """Log the child task's error, and try again later."""
        assert self._child is not None
        child, self._child = self._child, None
        # Whoever cancels a child here takes it away: this one ended with the cancellation of something that it awaited.
        error = AwaitedCancelled() if child.cancelled() else child.exception()
        if error is None:
            return
        if isinstance(error, CRIError):
            # The call may have done something all the same: the runtime's records of the pod are read anew.
            log.warning("%s: %s", child.get_name(), error)
            self.state.runtime_uncertain = True
        else:
            log.error("%s failed", child.get_name(), exc_info=error)
            self.state.runtime_uncertain |= child.cancelled()
        self._terminating_within = None
        delay = RUNTIME_SECONDS if isinstance(error, CRIError) else UNEXPECTED_SECONDS
        self._wakeup.request_sync_at(self._deps.monotonic() + delay)

    async def _timed_sync(self) -> None:
        metrics, began = self._deps.metrics, self._deps.clock.monotonic()
        if not self._syncs:
            metrics.worker_start.observe(began - self._created)
        kind = "create" if not self._syncs else "update" if self._updated else "sync"
        self._syncs, self._updated = self._syncs + 1, False
        await sync(self._context)
        metrics.worker_seconds.observe(self._deps.clock.monotonic() - began, kind)
