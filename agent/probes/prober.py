"""Schedules probes: one heap of times for all containers of the node, and one task that waits for the first.

Each probe runs as a task of its own, because it may take up to its timeout; the next one starts a period after the last did.
The first starts as soon as the container has started (after initialDelaySeconds), so that a healthy container is ready at once.
After the agent's own restart, containers that were started and ready stay so until a probe says otherwise, and first probes are
spread over a period.

Probes of a namespace have a share of the event loop's CPU time. Above it they are delayed, and a delayed probe has not failed.
The time that a probe took last is charged when it starts, so that many do not start at once. Time in which the event loop was
blocked does not count for a probe's timeout (kube/loop_timeout.py).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.interfaces import OutcomeChanged, ProbeOutcome, ProbeTarget
from agent.lifecycle import Kind as ContainerKind
from agent.lifecycle import find_container
from agent.probes.handlers import Handlers
from agent.probes.probe_metrics import ProbeMetrics
from agent.probes.result import Handler, Result, Target, Verdict
from agent.probes.state import ContainerProbes, Kind
from agent.probes.transitions import transition
from agent.threads import Owner
from cri.runtime_service import RuntimeService
from kube import cancellation
from kube.api import core_v1
from kube.clock import Clock
from kube.cpu_time import CPUTime, measured
from kube.events import WARNING, EventRecorder
from kube.fair_steps import FairSteps
from kube.rate import Rate

log = logging.getLogger(__name__)

CPU_BURST, CPU_SHARE = 2.0, 0.1
"""Seconds of CPU time that probes of a namespace may take, and the part of all time after that."""
CPU_LONGEST = 60.0
"""Seconds that a probe is delayed for at most."""
ITERATION_SECONDS = 0.005
"""CPU time of the steps of all probes in one iteration of the event loop, before the next one."""
_SHORTEST_DELAY = 0.05


@dataclass(slots=True)
class _Probed:
    """One container instance under observation."""

    pod: core_v1.Pod
    target: Target
    started_at: float
    state: ContainerProbes
    scheduled: set[Kind] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    stopped: bool = False
    seconds: dict[Kind, float] = field(default_factory=dict)
    """CPU time of each kind's last probe."""

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace or ""

    def stop(self) -> None:
        self.stopped = True
        for task in self.tasks:
            task.cancel()


def _name(probed: _Probed) -> tuple[str, str]:
    return probed.pod.metadata.uid or "", probed.target.container.name


class PodProber:
    """Implements `agent.interfaces.Prober`. `run` must be running."""

    def __init__(
        self,
        runtime: RuntimeService,
        recorder: EventRecorder,
        changed: OutcomeChanged,
        clock: Clock,
        handler: Handler | None = None,
    ) -> None:
        self.metrics = ProbeMetrics()
        self._handlers = Handlers(runtime)
        self._handle: Handler = handler or self._handlers.run
        self._recorder = recorder
        self._changed = changed
        self._clock = clock
        self._began = clock.now().timestamp()
        self._pods: dict[str, dict[str, _Probed]] = {}
        self._containers: dict[str, _Probed] = {}
        self._queue: list[tuple[float, int, _Probed, Kind]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._fair = FairSteps(ITERATION_SECONDS)
        self._cpu = Rate(CPU_BURST, CPU_SHARE, CPU_LONGEST)

    def sync(self, pod: core_v1.Pod, pod_ip: str, targets: Sequence[ProbeTarget]) -> None:
        """Probe exactly these containers of the pod: begin with new ones, stop with the others."""
        uid = pod.metadata.uid or ""
        known = self._pods.get(uid, {})
        kept: dict[str, _Probed] = {}
        for wanted in targets:
            probed = known.pop(wanted.container_id, None) or self._begin(pod, pod_ip, wanted)
            if probed is None:
                continue
            probed.pod = pod
            kept[wanted.container_id] = self._containers[wanted.container_id] = probed
            self._plan(probed, first=False)
        self._drop(known)
        if kept:
            self._pods[uid] = kept
        else:
            self._pods.pop(uid, None)

    def end(self, uid: str) -> None:
        """Make only readiness probes of a pod from now on: its containers are being stopped."""
        for probed in self._pods.get(uid, {}).values():
            probed.state.ending = True

    def stop(self, uid: str) -> None:
        """Stop everything for a pod; what was in progress is cancelled."""
        self._drop(self._pods.pop(uid, {}))

    def outcome(self, container_id: str) -> ProbeOutcome | None:
        """Return what is known of a container; None if it is not probed."""
        probed = self._containers.get(container_id)
        return probed.state.outcome() if probed is not None else None

    async def run(self) -> None:
        """Make the probes as they become due, until cancelled. After an error it may be called again: no probe is lost."""
        try:
            while True:
                self._start_due()
                await self._until_next()
        except asyncio.CancelledError:
            if cancellation.requested():
                for uid in list(self._pods):
                    self.stop(uid)
            raise

    def _start_due(self) -> None:
        """Start the probes that are due. One that cannot be started for an unforeseen error is due again a period later."""
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now:
            at, _, probed, kind = heapq.heappop(self._queue)
            if probed.stopped:
                continue
            try:
                self._start(probed, kind, at)
            except Exception:
                self._put(probed, kind, now + float(probed.state.probe(kind).period_seconds or 10))
                raise

    def _drop(self, gone: dict[str, _Probed]) -> None:
        for container_id, probed in gone.items():
            self._containers.pop(container_id, None)
            probed.stop()
        if gone:
            # Their next probes may be due in years, and a pod is large.
            self._queue = [entry for entry in self._queue if not entry[2].stopped]
            heapq.heapify(self._queue)
            left = set(map(_name, self._containers.values()))  # a restarted container continues its counts
            self.metrics.forget(set(map(_name, gone.values())) - left)

    def _begin(self, pod: core_v1.Pod, pod_ip: str, wanted: ProbeTarget) -> _Probed | None:
        container = wanted.container
        if not (container.startup_probe or container.liveness_probe or container.readiness_probe):
            return None
        was_started = was_ready = False
        # What an agent before this one reported of the instance; the wall clock may have been set since it started.
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
            if (status.container_id or "").endswith(wanted.container_id):
                was_started, was_ready = bool(status.started), bool(status.ready)
        state = ContainerProbes.of(container, was_started=was_started, was_ready=was_ready)
        target = Target(container, wanted.container_id, pod_ip, Owner.of(pod))
        probed = _Probed(pod, target, wanted.started_at, state)
        self._plan(probed, first=True)
        return probed

    def _plan(self, probed: _Probed, *, first: bool) -> None:
        """Put the probes that are wanted and not yet planned into the queue."""
        wall, now = self._clock.now().timestamp(), self._clock.monotonic()
        for kind in probed.state.wanted() - probed.scheduled:
            probe = probed.state.probe(kind)
            # Never longer than the probe's own delay: a clock that was set back has the start in the future.
            initial = float(probe.initial_delay_seconds or 0)
            delay = max(0.0, min(initial, probed.started_at + initial - wall))
            if first and probed.started_at < self._began:
                delay = max(delay, random.random() * (probe.period_seconds or 10))
            self._put(probed, kind, now + delay)

    def _put(self, probed: _Probed, kind: Kind, at: float) -> None:
        probed.scheduled.add(kind)
        heapq.heappush(self._queue, (at, next(self._order), probed, kind))
        self._wake.set()

    def _start(self, probed: _Probed, kind: Kind, at: float) -> None:
        probed.scheduled.discard(kind)
        if kind not in probed.state.wanted():
            return
        if delay := self._cpu.delay(probed.namespace, now := self._clock.monotonic()):
            self._put(probed, kind, now + max(delay, _SHORTEST_DELAY))
            return
        self._charge(probed, probed.seconds.get(kind, 0.0))
        probed.scheduled.add(kind)
        pod = probed.pod.metadata
        name = f"{kind.value} probe {pod.namespace}/{pod.name}/{probed.target.container.name}"
        task = asyncio.create_task(self._charged(probed, kind, at), name=name)
        probed.tasks.add(task)
        task.add_done_callback(probed.tasks.discard)

    async def _charged(self, probed: _Probed, kind: Kind, at: float) -> None:
        taken = CPUTime(self._fair, probed.namespace)
        try:
            await measured(self._probe(probed, kind, at), taken)
        finally:
            self._charge(probed, taken.seconds - probed.seconds.get(kind, 0.0))
            probed.seconds[kind] = taken.seconds

    async def _probe(self, probed: _Probed, kind: Kind, at: float) -> None:
        probe, began = probed.state.probe(kind), self._clock.monotonic()
        result = await self._answer(probe, probed.target)
        probed.scheduled.discard(kind)
        if probed.stopped:
            return
        pod, name = probed.pod.metadata, probed.target.container.name
        key = (pod.namespace or "", pod.name or "", pod.uid or "", name, kind.value)
        self.metrics.add(key, result.verdict, self._clock.monotonic() - began)
        self._report(probed, kind, result)
        before = probed.state.outcome()
        changed = probed.state.record(kind, result.verdict)
        if changed:
            text = transition(name, kind, before, probed.state.outcome(), result.message)
            self._recorder.decisions.record(probed.pod, text)
        now, period = self._clock.monotonic(), float(probe.period_seconds or 10)
        if kind in probed.state.wanted():
            self._put(probed, kind, max(at + period, now))
        self._plan(probed, first=False)
        if changed:
            self._changed(probed.pod.metadata.uid or "")

    def _charge(self, probed: _Probed, seconds: float) -> None:
        if seconds > 0.0:
            self._cpu.charge(probed.namespace, seconds, self._clock.monotonic())

    async def _answer(self, probe: core_v1.Probe, target: Target) -> Result:
        try:
            return await cancellation.as_error(self._handle(probe, target))
        except Exception as error:
            log.exception("probe of container %s", target.container_id)
            return Result(Verdict.ERRORED, str(error))

    def _report(self, probed: _Probed, kind: Kind, result: Result) -> None:
        event = {
            Verdict.FAILURE: ("Unhealthy", "failed"),
            Verdict.WARNING: ("ProbeWarning", "warning"),
            Verdict.ERRORED: ("Unhealthy", "errored and resulted in unknown state"),
        }.get(result.verdict)
        if event is not None:
            reason, verb = event
            name = probed.target.container.name
            found = find_container(probed.pod, name)
            part = "initContainers" if found is not None and found[1] is ContainerKind.INIT else "containers"
            message = f"{kind.value} probe {verb}: {result.message}"
            self._recorder.event(probed.pod, WARNING, reason, message, field_path=f"spec.{part}{{{name}}}")

    async def _until_next(self) -> None:
        self._wake.clear()
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._wake.wait())]
        if self._queue:
            waits.append(asyncio.ensure_future(self._clock.sleep(self._queue[0][0] - self._clock.monotonic())))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
