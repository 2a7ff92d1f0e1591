"""One pod's worker: a serial task that brings what runs to what the pod asks for, until the pod is gone.

The worker sleeps on one event. Anything that may matter sets it: a new spec, a container's exit, a probe's verdict, a
Secret that changed, a timer. It then reads what it was told to look at again, asks the state machine (lifecycle.plan) and
does what it says, in a child task: so the pod's end can cancel a pull or a hook that is under way, and the status stays
current while one runs.

Its whole state can be rebuilt: containers, restart counts and hashes are in the runtime's labels, the rest in the
API. So a restart of the agent is the same as a new spec for a pod whose containers already run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.backoff import BackOff
from agent.lifecycle import End, Kill, Situation, container_hash, find_container, plan
from agent.pods import end as pod_end
from agent.pods import resize
from agent.pods import start as pod_start
from agent.pods.references import references_of
from agent.pods.resize import Hold
from agent.pods.resize_events import ResizeStory
from agent.pods.setup import with_message
from agent.pods.state import PodState
from agent.pods.toolbox import Toolbox
from agent.records import ContainerRecord, PodRuntime
from agent.status.container import Waiting
from agent.status.pod import ENDED_PHASES
from cri.errors import CRIError
from kube import duration
from kube.api import core_v1
from kube.events import NORMAL, WARNING

log = logging.getLogger(__name__)

EXIT_LAG = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between looks at a container that was said to be dead: the runtime tells its listeners before itself."""
RUNTIME_SECONDS = 0.5
"""After the runtime has failed in between, how long until it is asked again."""
TROUBLE_SECONDS = 5.0
"""After an error nobody expected, how long until the next try."""


class PodWorker(PodState):
    """The worker of one pod UID. `run` returns when nothing of the pod is left on the node or in the API."""

    def __init__(
        self, pod: core_v1.Pod, tools: Toolbox, runtime: PodRuntime | None = None, *, rejected: End | None = None
    ) -> None:
        super().__init__(pod, tools, runtime, rejected=rejected)
        self.retry_at: dict[str, float] = {}
        """By container name: when to try again after a failure; "" is the sandbox, "/volumes" the volumes."""
        self.back_off = BackOff(10.0, tools.config.back_off_max)
        self.failures = BackOff(1.0, 60.0)
        self.contents_due: float | None = None
        """When the volumes want another look: a token is due, or now (0.0) because contents changed."""
        self._news = 0
        """How often a ConfigMap or Secret that the pod names has changed."""
        self.hold_resize: Callable[[core_v1.Pod], Hold | None] = lambda pod: None
        self._story = ResizeStory(self.event)
        self.waits_for: set[str] = set()
        """UIDs of pods that make way for this one: it starts when what they hold is free."""
        self.placed = False
        """The node's managers have given the pod processors, memory and devices."""
        self._stale: set[str] = set()
        self._wake = asyncio.Event()
        self._wake.set()
        self._due = True
        self._timer: tuple[float, asyncio.Task[None]] | None = None
        self._child: asyncio.Task[None] | None = None
        self._ending_with: int | None = None
        self._born = tools.clock.monotonic()
        self._syncs = 0
        self._updated = False
        """The spec was changed since the last round."""
        self._backing_off: dict[str, str] = {}

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
            for record in runtime.containers:
                before = known.get(record.id)
                kept = before if before is not None and before.state is record.state else with_message(record)
                runtime = runtime.with_container(kept)
            self.runtime = runtime
            self.look_again()

    def outcome_changed(self) -> None:
        """A probe's verdict changed."""
        self.look_again()

    def contents_changed(self) -> None:
        """A ConfigMap or Secret that the pod names changed."""
        self._news += 1
        self.contents_due = 0.0
        self.retry_at.clear()
        self.look_again()

    def look_again(self) -> None:
        """Have the worker go over everything once more."""
        self._due = True
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
                    await self._refresh()
                    self._due = True
                if self._child is not None and self._child.done():
                    self._reap()
                if self.ending:
                    if self.discarded:
                        return
                    await self._work_on_end()
                elif self._due and self._child is None and not self.waits_for:
                    self._begin(self._timed_sync(), "sync")
                elif self._due:
                    self.publish()
        finally:
            self._cancel_timer()
            self.cancel_late()
            if self._child is not None:
                self._child.cancel()
                await asyncio.gather(self._child, return_exceptions=True)
            self.tools.prober.stop(self.uid)
            self.tools.references.forget(self.uid)
            self.tools.images.forget(self.uid)

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
        self._due = False
        self._cancel_timer()
        name = f"{what} pod {self.pod.metadata.namespace}/{self.pod.metadata.name}"
        self._child = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
        self._child.add_done_callback(lambda _: self._wake.set())

    def _reap(self) -> None:
        """Take the child's result; an error nobody expected is logged and tried again later."""
        assert self._child is not None
        child, self._child = self._child, None
        if child.cancelled():
            return
        error = child.exception()
        if isinstance(error, CRIError):
            # Something may have been done whose end nobody heard of: what there is of the pod is read anew.
            log.warning("%s: %s", child.get_name(), error)
            self.suspect, self._ending_with = True, None
            self.wake_at(self.tools.now() + RUNTIME_SECONDS)
        elif error is not None:
            log.error("%s failed", child.get_name(), exc_info=error)
            self._ending_with = None
            self.wake_at(self.tools.now() + TROUBLE_SECONDS)

    def wake_at(self, at: float | None) -> None:
        """Have the worker look again at a moment (epoch seconds) at the latest."""
        if at is None or (self._timer is not None and self._timer[0] <= at):
            return
        self._cancel_timer()

        async def later() -> None:
            await self.tools.clock.sleep(max(0.0, at - self.tools.now()))
            self._timer = None
            self.look_again()

        self._timer = (at, asyncio.create_task(later(), name=f"timer of pod {self.uid}"))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    # -- one round --------------------------------------------------------------------------------------------------
    async def _timed_sync(self) -> None:
        observed, began = self.tools.observed, self.tools.clock.monotonic()
        if not self._syncs:
            observed.worker_start.observe(began - self._born)
        kind = "create" if not self._syncs else "update" if self._updated else "sync"
        self._syncs, self._updated = self._syncs + 1, False
        await self._sync()
        observed.worker_seconds.observe(self.tools.clock.monotonic() - began, kind)

    async def _sync(self) -> None:
        """Do what the state machine says until it has nothing more to say."""
        if self.applied is None:
            ran = bool(self.runtime.containers)
            folder = self.tools.volumes.pod_dir(self.uid)
            self.applied = await asyncio.to_thread(resize.load, folder) if ran else {}
        if not self.placed and not await self._place():
            return
        if self.suspect:
            await pod_end.look_for_leftovers(self)
        rounds = 0
        while True:
            self._due = False
            looked = self.tools.now()
            self.probe()
            differs = self._resized()
            self.held = self.hold_resize(self.pod) if differs else None
            settled = all((found := self.runtime.latest(c.name)) and found.running for c in self.pod.spec.containers)
            self._story.look(self.pod, differs=differs, held=self.held, settled=settled)
            decided = plan(
                Situation(
                    pod=self.basis(),
                    runtime=self.runtime,
                    now=looked,
                    outcomes=self.outcomes(),
                    ready_at=self._ready_at,
                    retry_at=self.retry_at,
                    applied=self.applied,
                    hold_resize=self.held is not None,
                )
            )
            self._show_back_off(decided.backing_off)
            if decided.end is not None:
                self.end = decided.end
                if decided.end.reason:
                    self.event(NORMAL, decided.end.reason, decided.end.message)
                self._wake.set()
                return
            # The first round shows that the agent has the pod (kubectl: ContainerCreating); what comes between that and
            # its containers is told only where it lasts.
            if rounds == 0:
                self.publish()
                if self._last_status is not None and self._last_status.phase in ENDED_PHASES:
                    # What may not run again was lost by the runtime: told as ended, the pod gets nothing started.
                    self.end = End()
                    self._wake.set()
                    return
            else:
                self.publish_late()
            rounds += 1
            news = self._news
            progressed = await pod_start.carry_out(self, decided)
            if news != self._news:
                # What failed meanwhile may have looked before the news came: it does not wait for its back-off.
                self.contents_due = 0.0
                self.retry_at.clear()
            for container_id in decided.remove:
                await self.remove_container(container_id)
            for sandbox_id in decided.remove_sandboxes:
                await pod_end.remove_sandbox(self, sandbox_id)
            if not progressed and not self._due:
                self.publish()
                self.wake_at(decided.wake_at)
                # What was due before was considered, and waits for something else (a longer back-off).
                self.wake_at(min((at for at in self.retry_at.values() if at > looked), default=None))
                self.wake_at(self.contents_due)
                return

    async def _place(self) -> bool:
        """Have the node's managers give the pod what it asks for; False where it fails for want of it."""
        running = {record.name for record in self.runtime.alive}
        refused = await self.tools.managers.admit(self.pod, running)
        if refused is None:
            self.placed = True
            return True
        self.rejected = self.end = refused
        self.event(WARNING, refused.reason, refused.message)
        self._wake.set()
        return False

    def _resized(self) -> bool:
        """Tell whether the spec asks for another size than a running container has."""
        for container in (*self.pod.spec.init_containers, *self.pod.spec.containers):
            record = self.runtime.latest(container.name)
            if record is not None and record.running and (given := (self.applied or {}).get(record.id)) is not None:
                if resize.changed(container, given):
                    return True
        return False

    def _ready_at(self, name: str, record: ContainerRecord) -> float:
        return self.back_off.ready_at(self._back_off_key(name), record.finished_at)

    def _back_off_key(self, name: str) -> str:
        found = find_container(self.pod, name)
        return f"{name}_{container_hash(found[0])}" if found else name

    def count_restart(self, name: str) -> None:
        """Count a restart of a container that exited: the next one waits longer."""
        record = self.runtime.latest(name)
        if record is not None and record.exited:
            self.back_off.next(self._back_off_key(name), self.tools.now())

    def forget_restart(self, name: str) -> None:
        """Take back that a restart was counted: it was not the container's fault."""
        self.back_off.reset(self._back_off_key(name))

    def _show_back_off(self, backing_off: object) -> None:
        assert isinstance(backing_off, dict)
        for name in [n for n, w in self.waiting.items() if w.reason == "CrashLoopBackOff" and n not in backing_off]:
            del self.waiting[name]
        metadata = self.pod.metadata
        for name in backing_off:
            delay = duration.render(self.back_off.delay(self._back_off_key(name)))
            where = f"{metadata.name}_{metadata.namespace}({self.uid})"
            self.waiting[name] = Waiting(
                "CrashLoopBackOff", f"back-off {delay} restarting failed container={name} pod={where}"
            )
            record = self.runtime.latest(name)
            if record is not None and self._backing_off.get(name) != record.id:
                self._backing_off[name] = record.id
                message = f"Back-off restarting failed container {name} in pod {where}"
                self.event(WARNING, "BackOff", message, name)

    # -- what runs ----------------------------------------------------------------------------------------------------
    async def _refresh(self) -> None:
        """Read again what events pointed at."""
        stale, self._stale = self._stale, set()
        for container_id in stale:
            try:
                await self._refresh_one(container_id)
            except CRIError as error:
                log.warning("pod %s: reading %s: %s", self.uid, container_id[:13], error)

    async def _refresh_one(self, container_id: str) -> None:
        if any(sandbox.id == container_id for sandbox in self.runtime.sandboxes):
            for lag in EXIT_LAG:
                sandbox = await self.tools.runtime.sandbox(container_id)
                if sandbox is None:
                    self.runtime = self.runtime.without_sandbox(container_id)
                    return
                if not sandbox.ready:
                    self.runtime = self.runtime.with_sandbox(sandbox)
                    return
                await self.tools.clock.sleep(lag)
            return
        for lag in EXIT_LAG:
            record = await self.reload(container_id)
            if record is None or record.exited:
                return
            await self.tools.clock.sleep(lag)

    async def stop_container(self, kill: Kill, grace: int, hook: bool = True) -> None:
        """Run the preStop hook, stop a container within the grace period and keep its end's record."""
        await pod_end.stop_container(self, kill, grace, hook)
