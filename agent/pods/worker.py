"""One pod's worker: a serial task that syncs the pod with its spec until nothing of it is left.

The worker sleeps until it is woken (wakeup.py) by anything that may matter: a new spec, a container's exit, a probe's outcome,
a changed Secret, a timer. It reads what events named again and runs a sync (steps/sync.py) or the pod's termination
(steps/termination.py) in a child task (child_task.py): so the termination can cancel a pull or a hook that is under way, and
the status stays current meanwhile.

A restart of the agent is the same as a new spec for a pod whose containers already run (state.py).
"""

from __future__ import annotations

from collections.abc import Callable

from agent.lifecycle import End
from agent.lifecycle.resize import PendingResize
from agent.pods.child_task import ChildTask
from agent.pods.context import PodContext
from agent.pods.dependencies import PodDependencies
from agent.pods.references import references_of
from agent.pods.reporter import PodReporter
from agent.pods.state import PodState
from agent.pods.steps.record_updates import read_exits, replace_records
from agent.pods.steps.sync import sync
from agent.pods.steps.termination import grace_seconds, remove_logs, remove_sandboxes, terminate_pod
from agent.pods.sync_metrics import SyncMetrics
from agent.pods.sync_spans import SyncSpans
from agent.pods.wakeup import WakeUp
from agent.runtime_records import PodRuntime
from agent.status.phase import ENDED_PHASES
from agent.volumes.used import used_volumes
from kube.api import core_v1


class PodWorker:
    """The worker of one pod UID. `run` returns when nothing of the pod is left on the node or in the API."""

    def __init__(
        self,
        state: PodState,
        deps: PodDependencies,
        *,
        pending_resize: Callable[[core_v1.Pod], PendingResize | None],
        size_changed: Callable[[], None],
        resources_released: Callable[[], None],
        exceeded_grace: Callable[[str], None],
    ) -> None:
        """`exceeded_grace` records that the pod does not wait for a preempted one, by UID, any longer."""
        self.state, self._deps = state, deps
        self._exceeded_grace = exceeded_grace
        self.reporter = PodReporter(state, deps)
        self._wakeup = WakeUp(deps.clock, state.uid)
        self._context = PodContext(
            state, deps, self.reporter, self._wakeup, pending_resize, size_changed, resources_released
        )
        self.request_sync = self._wakeup.request_sync
        self._unread: set[str] = set()
        """IDs of containers and sandboxes to read again."""
        self._child = ChildTask(state, self._wakeup, deps.clock)
        self._metrics = SyncMetrics(deps.metrics, deps.clock)
        self._spans = SyncSpans(deps.tracer, state)

    # -- events ---------------------------------------------------------------------------------------------------
    def update(self, pod: core_v1.Pod) -> None:
        """Take over the API's newest version of the pod."""
        old, self.state.pod = self.state.pod, pod
        before = old.metadata
        if used_volumes(old) != used_volumes(pod):
            self.state.volumes.refresh_at = 0.0  # an ephemeral container uses another one
        if before.generation != pod.metadata.generation:
            self._metrics.spec_changed()
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
        """Terminate the pod for a reason of the node's (eviction, shutdown), or within a shorter grace period than before."""
        termination = self.state.termination
        if termination.cause is None:
            termination.cause, termination.grace = end, grace
        elif grace is not None:
            termination.grace = grace if termination.grace is None else min(grace, termination.grace)
        self.request_sync()

    def container_changed(self, container_id: str) -> None:
        """Read a container or sandbox of the pod again: the runtime sent an event."""
        self._unread.add(container_id)
        self._wakeup.wake()

    def replace_runtime(self, runtime: PodRuntime) -> None:
        """Take over a listing of the runtime: it repairs what events missed."""
        if not self._child.running and runtime != self.state.runtime:
            self._unread |= replace_records(self._context, runtime)
            self.request_sync()

    def references_changed(self, delay: float = 0.0) -> None:
        """Refresh the volumes and retry what failed, in so many seconds: a ConfigMap or Secret that the pod names changed."""
        self.state.volumes.config_generation += 1
        self.state.volumes.refresh_at = 0.0
        self.state.step_back_off.retry_at.clear()
        if delay:
            # Any sync before that refreshes them too.
            self._wakeup.request_sync_at(self._deps.clock.monotonic() + delay)
        else:
            self.request_sync()

    def clock_stepped(self) -> None:
        """Compute again when tokens are renewed and the active deadline passes: both depend on the wall clock."""
        self.state.volumes.refresh_at = 0.0
        self.request_sync()

    async def remove_leftovers(self) -> None:
        """Remove containers and logs of the pod, which has ended.

        The containers of a pod whose end is not in the API yet are kept: an agent that starts now must find that they ran.
        """
        if self.state.pod.status.phase in ENDED_PHASES and not self.state.static:
            await remove_sandboxes(self._context)
        await remove_logs(self._context)

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
                self._child.handle_result()
                if state.terminating:
                    if state.termination.removed:
                        return
                    await self._terminate()
                elif self._wakeup.sync_requested and not self._child.running and not self._waits_for_preempted():
                    if delay := self._child.delay():
                        self._wakeup.sync_requested = False
                        self._wakeup.request_sync_at(deps.clock.monotonic() + delay)
                    else:
                        work = self._metrics.observe(sync(self._context))
                        self._child.start(self._spans.sync(self._metrics.kind, work), "sync")
                elif self._wakeup.sync_requested:
                    self.reporter.publish_during_sync()
        finally:
            self._wakeup.cancel_timer()
            self.reporter.cancel_late()
            await self._child.cancel()
            deps.prober.stop(state.uid)
            deps.references.forget(state.uid)
            deps.images.forget(state.uid)

    def _waits_for_preempted(self) -> bool:
        """Return whether a pod that is preempted for this one has not released its resources and may take longer."""
        preempted, now = self.state.preempted, self._deps.clock.monotonic()
        for uid in [uid for uid, deadline in preempted.items() if deadline <= now]:
            del preempted[uid]
            self._exceeded_grace(uid)
        self._wakeup.request_sync_at(min(preempted.values(), default=None))
        return bool(preempted)

    async def _terminate(self) -> None:
        """Start the pod's termination, and start it over when the grace period was shortened; report what changes meanwhile."""
        grace, termination = grace_seconds(self._context), self.state.termination
        if self._child.running:
            if self._child.grace is not None and (termination.finished or grace >= self._child.grace):
                self._publish_while_stopping()
                return
            await self._child.cancel()
            self.state.runtime_uncertain = True
        if termination.torn_down and not self.state.deleted:
            self.reporter.publish()  # a mirror pod may have been created that has no status yet
            return
        self._child.start(self._spans.termination(terminate_pod(self._context, grace)), "end", grace)

    def _publish_while_stopping(self) -> None:
        """Report what is new of containers that have not stopped yet, such as their readiness."""
        if self._wakeup.sync_requested and any(record.running for record in self.state.runtime.containers):
            self._wakeup.sync_requested = False
            self.reporter.publish_soon()
