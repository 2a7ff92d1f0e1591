"""One pod's worker: a serial task that brings what runs to what the pod asks for, until the pod is gone.

The worker sleeps on one event. Anything that may matter sets it: a new spec, a container's exit, a probe's verdict, a
Secret that changed, a timer. It then reads what it was told to look at again and has the pod brought on (sync.py) or ended
(end.py) in a child task: so the pod's end can cancel a pull or a hook that is under way, and the status stays current
while one runs.

Its whole state can be rebuilt: containers, restart counts and hashes are in the runtime's labels, the rest in the
API. So a restart of the agent is the same as a new spec for a pod whose containers already run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.backoff import BackOff
from agent.lifecycle import End
from agent.pods import end as pod_end
from agent.pods.crash_loop import CrashLoopBackOff
from agent.pods.late_exits import read_again
from agent.pods.references import references_of
from agent.pods.resize import Hold
from agent.pods.resize_events import ResizeStory
from agent.pods.sync import sync
from agent.pods.termination_messages import is_on_volume, with_own_message
from agent.pods.told import ToldPod
from agent.pods.toolbox import Toolbox
from agent.records import PodRuntime
from cri.errors import CRIError
from kube.api import core_v1
from kube.cancellation import AwaitedCancelled

log = logging.getLogger(__name__)

RUNTIME_SECONDS = 0.5
"""After the runtime has failed in between, how long until it is asked again."""
TROUBLE_SECONDS = 5.0
"""After an error nobody expected, how long until the next try."""


class PodWorker(ToldPod):
    """The worker of one pod UID. `run` returns when nothing of the pod is left on the node or in the API."""

    def __init__(
        self,
        pod: core_v1.Pod,
        tools: Toolbox,
        runtime: PodRuntime | None = None,
        *,
        static: bool = False,
        rejected: End | None = None,
    ) -> None:
        super().__init__(pod, tools, runtime, static=static, rejected=rejected)
        self.retry_at: dict[str, float] = {}
        """By container name: when (by the monotonic clock) to try again after a failure; "" is the sandbox, "/volumes"
        the volumes."""
        self.crash_loop = CrashLoopBackOff(self, tools.config.back_off_max)
        self.failures = BackOff(1.0, 60.0)
        self.contents_due: float | None = None
        """When (by the monotonic clock) the volumes want another look: a token is due, or contents changed (0.0: now)."""
        self.news = 0
        """How often a ConfigMap or Secret that the pod names has changed."""
        self.hold_resize: Callable[[core_v1.Pod], Hold | None] = lambda pod: None
        self.size_changed: Callable[[], None] = lambda: None
        """Called when the pod was granted another size."""
        self.resize_story = ResizeStory(self.event)
        self.waits_for: set[str] = set()
        """UIDs of pods that make way for this one: it starts when what they hold is free."""
        self.placed = False
        """The node's managers have given the pod processors, memory and devices."""
        self._stale: set[str] = set()
        """IDs of containers and sandboxes that something happened to."""
        self._wake = asyncio.Event()
        self._wake.set()
        self.due = True
        """Something may have changed since the pod was last planned."""
        self._timer: tuple[float, asyncio.Task[None]] | None = None
        self._child: asyncio.Task[None] | None = None
        self._ending_with: int | None = None
        self._born = tools.clock.monotonic()
        self._syncs = 0
        self._updated = False
        """The spec was changed since the last round."""

    # -- what happens to the pod ----------------------------------------------------------------------------------
    def update(self, pod: core_v1.Pod) -> None:
        """Take in the API's newest version of the pod."""
        before, self.pod = self.pod.metadata, pod
        self._updated |= before.generation != pod.metadata.generation
        if (before.labels, before.annotations) != (pod.metadata.labels, pod.metadata.annotations):
            self.contents_due = 0.0  # downward API volumes may show them
        self.look_again()

    def mirrored(self, mirror: core_v1.Pod | None) -> None:
        """Take in the API's mirror of a static pod, None when it is gone."""
        self.mirror = mirror
        self.look_again()

    def vanish(self) -> None:
        """The object is gone from the API: end what runs."""
        self.in_api = False
        self.look_again()

    def kill(self, end: End, grace: int | None = None) -> None:
        """End the pod for a reason of the node's (eviction, shutdown)."""
        if self.end is None:
            self.end, self.grace = end, grace
        self.look_again()

    def container_changed(self, container_id: str) -> None:
        """The runtime says that something happened to a container or sandbox of the pod."""
        self._stale.add(container_id)
        self._wake.set()

    def replace_runtime(self, runtime: PodRuntime) -> None:
        """Take in a listing of the runtime: the slow repair of what events missed."""
        if self._child is None and runtime != self.runtime:
            # Messages read before stay with their records.
            known = {record.id: record for record in self.runtime.containers}
            pod_dir = self.tools.volumes.pod_dir(self.uid)
            for record in runtime.containers:
                before = known.get(record.id)
                if before is not None and before.state is record.state:
                    runtime = runtime.with_container(before)
                elif is_on_volume(record, pod_dir):
                    self._stale.add(record.id)  # reading it may take its time
                    self.suspect |= self.ending
                else:
                    runtime = runtime.with_container(with_own_message(record))
            self.runtime = runtime
            self.look_again()

    def outcome_changed(self) -> None:
        """A probe's verdict changed."""
        self.look_again()

    def contents_changed(self) -> None:
        """A ConfigMap or Secret that the pod names changed."""
        self.news += 1
        self.contents_due = 0.0
        self.retry_at.clear()
        self.look_again()

    def look_again(self) -> None:
        """Have the worker go over everything once more."""
        self.due = True
        self._wake.set()

    # -- the task -------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Work until the pod is gone."""
        self.tools.references.track(self.uid, references_of(self.pod))
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._stale and not self.ending:
                    stale, self._stale = self._stale, set()
                    await read_again(self, stale)
                    self.due = True
                if self._child is not None and self._child.done():
                    self._reap()
                if self.ending:
                    if self.discarded:
                        return
                    await self._work_on_end()
                elif self.due and self._child is None and not self.waits_for:
                    self._begin(self._timed_sync(), "sync")
                elif self.due:
                    self._publish_meanwhile()
        finally:
            self._cancel_timer()
            self.cancel_late()
            if self._child is not None:
                self._child.cancel()
                await asyncio.gather(self._child, return_exceptions=True)
            self.tools.prober.stop(self.uid)
            self.tools.references.forget(self.uid)
            self.tools.images.forget(self.uid)

    def _publish_meanwhile(self) -> None:
        """Tell what is new while a round is under way; of a pod that starts, the round's end will tell more."""
        told = self.last_status
        if told is not None and any(status.state and status.state.running for status in told.container_statuses):
            self.publish()
        else:
            self.publish_late()

    async def _work_on_end(self) -> None:
        """Start the pod's end; start it over with less time when the grace was shortened."""
        grace = pod_end.grace_seconds(self)
        if self._child is not None:
            if self._ending_with is not None and grace >= self._ending_with:
                return
            self._child.cancel()
            await asyncio.gather(self._child, return_exceptions=True)
            self._child, self.suspect = None, True
        if self.finished and not self.leaving:
            self.publish()  # a mirror pod may have come that was told nothing yet
            return
        self._ending_with = grace
        self._begin(pod_end.end_pod(self, grace), "end")

    def _begin(self, work: object, what: str) -> None:
        self.due = False
        self._cancel_timer()
        name = f"{what} pod {self.pod.metadata.namespace}/{self.pod.metadata.name}"
        self._child = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
        self._child.add_done_callback(lambda _: self._wake.set())

    def _reap(self) -> None:
        """Take the child's result; an error nobody expected is logged and tried again later."""
        assert self._child is not None
        child, self._child = self._child, None
        # Whoever cancels a child here takes it away: this one ended with the cancellation of something that it awaited.
        error = AwaitedCancelled() if child.cancelled() else child.exception()
        if isinstance(error, CRIError):
            # Something may have been done whose end nobody heard of: what there is of the pod is read anew.
            log.warning("%s: %s", child.get_name(), error)
            self.suspect, self._ending_with = True, None
            self.wake_at(self.tools.monotonic() + RUNTIME_SECONDS)
        elif error is not None:
            log.error("%s failed", child.get_name(), exc_info=error)
            self.suspect |= child.cancelled()
            self._ending_with = None
            self.wake_at(self.tools.monotonic() + TROUBLE_SECONDS)

    def retry_later(self, name: str) -> None:
        """Count a failure of a step: it waits before it is tried again (`retry_at`)."""
        now = self.tools.monotonic()
        self.retry_at[name] = now + self.failures.next(name, now)

    def succeeded(self, name: str) -> None:
        """Forget the failures of a step."""
        self.retry_at.pop(name, None)
        self.failures.reset(name)

    def wake_at(self, at: float | None) -> None:
        """Have the worker look again at a moment (of the monotonic clock) at the latest."""
        if at is None or (self._timer is not None and self._timer[0] <= at):
            return
        self._cancel_timer()

        async def later() -> None:
            await self.tools.clock.sleep(max(0.0, at - self.tools.monotonic()))
            self._timer = None
            self.look_again()

        self._timer = (at, asyncio.create_task(later(), name=f"timer of pod {self.uid}"))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    async def _timed_sync(self) -> None:
        observed, began = self.tools.observed, self.tools.clock.monotonic()
        if not self._syncs:
            observed.worker_start.observe(began - self._born)
        kind = "create" if not self._syncs else "update" if self._updated else "sync"
        self._syncs, self._updated = self._syncs + 1, False
        await sync(self)
        observed.worker_seconds.observe(self.tools.clock.monotonic() - began, kind)
