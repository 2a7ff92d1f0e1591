"""Schedules probes: one heap of times for all containers of the node, and one task that waits for the first.

Each probe runs as a task of its own, because it may take up to its timeout; the next one starts a period after the last did.
The first starts as soon as the container has started (after initialDelaySeconds), so that a healthy container is ready at once.
After the agent's own restart, containers that were started and ready stay so until a probe says otherwise, and first probes are
spread over a period.
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
from agent.threads import Owner
from cri.runtime_service import RuntimeService
from kube import cancellation
from kube.api import core_v1
from kube.clock import Clock
from kube.events import WARNING, EventRecorder

log = logging.getLogger(__name__)


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
        self.counts = ProbeMetrics()
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

    def sync(self, pod: core_v1.Pod, pod_ip: str, targets: Sequence[ProbeTarget]) -> None:
        """Probe exactly these containers of the pod: begin with new ones, stop with the others."""
        uid = pod.metadata.uid or ""
        known = self._pods.get(uid, {})
        kept: dict[str, _Probed] = {}
        ending = pod.metadata.deletion_timestamp is not None
        for wanted in targets:
            probed = known.pop(wanted.container_id, None) or self._begin(pod, pod_ip, wanted)
            if probed is None:
                continue
            probed.pod = pod
            probed.state.ending = ending
            kept[wanted.container_id] = self._containers[wanted.container_id] = probed
            self._plan(probed, first=False)
        self._drop(known)
        if kept:
            self._pods[uid] = kept
        else:
            self._pods.pop(uid, None)

    def stop(self, uid: str) -> None:
        """Stop everything for a pod; what was going on is cancelled."""
        self._drop(self._pods.pop(uid, {}))

    def outcome(self, container_id: str) -> ProbeOutcome | None:
        """Return what is known of a container; None where it is not probed."""
        probed = self._containers.get(container_id)
        return probed.state.outcome() if probed is not None else None

    async def run(self) -> None:
        """Make the probes as they become due, until cancelled."""
        try:
            while True:
                now = self._clock.monotonic()
                while self._queue and self._queue[0][0] <= now:
                    at, _, probed, kind = heapq.heappop(self._queue)
                    if not probed.stopped:
                        self._start(probed, kind, at)
                await self._until_next()
        finally:
            for uid in list(self._pods):
                self.stop(uid)

    def _drop(self, gone: dict[str, _Probed]) -> None:
        for container_id, probed in gone.items():
            self._containers.pop(container_id, None)
            probed.stop()
        if gone:
            left = set(map(_name, self._containers.values()))  # a restarted container continues its counts
            self.counts.forget(set(map(_name, gone.values())) - left)

    def _begin(self, pod: core_v1.Pod, pod_ip: str, wanted: ProbeTarget) -> _Probed | None:
        container = wanted.container
        if not (container.startup_probe or container.liveness_probe or container.readiness_probe):
            return None
        was_started = was_ready = False
        if wanted.started_at < self._began:
            for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
                if (status.container_id or "").endswith(wanted.container_id):
                    was_started, was_ready = bool(status.started), bool(status.ready)
        state = ContainerProbes.of(container, was_started=was_started, was_ready=was_ready)
        target = Target(container, wanted.container_id, pod_ip, Owner.of(pod))
        probed = _Probed(pod, target, wanted.started_at, state)
        self._plan(probed, first=True)
        return probed

    def _plan(self, probed: _Probed, first: bool) -> None:
        """Put the probes that are wanted and not yet planned into the queue."""
        wall, now = self._clock.now().timestamp(), self._clock.monotonic()
        for kind in probed.state.wanted() - probed.scheduled:
            probe = probed.state.probe(kind)
            delay = max(0.0, probed.started_at + (probe.initial_delay_seconds or 0) - wall)
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
        probed.scheduled.add(kind)
        pod = probed.pod.metadata
        name = f"{kind.value} probe {pod.namespace}/{pod.name}/{probed.target.container.name}"
        task = asyncio.create_task(self._probe(probed, kind, at), name=name)
        probed.tasks.add(task)
        task.add_done_callback(probed.tasks.discard)

    async def _probe(self, probed: _Probed, kind: Kind, at: float) -> None:
        probe, began = probed.state.probe(kind), self._clock.monotonic()
        result = await self._answer(probe, probed.target)
        probed.scheduled.discard(kind)
        if probed.stopped:
            return
        pod, name = probed.pod.metadata, probed.target.container.name
        key = (pod.namespace or "", pod.name or "", pod.uid or "", name, kind.value)
        self.counts.add(key, result.verdict, self._clock.monotonic() - began)
        self._report(probed, kind, result)
        changed = probed.state.record(kind, result.verdict)
        now, period = self._clock.monotonic(), float(probe.period_seconds or 10)
        if kind in probed.state.wanted():
            self._put(probed, kind, max(at + period, now))
        self._plan(probed, first=False)
        if changed:
            self._changed(probed.pod.metadata.uid or "")

    async def _answer(self, probe: core_v1.Probe, target: Target) -> Result:
        try:
            return await cancellation.as_error(self._handle(probe, target))
        except Exception as error:
            log.exception("probe of container %s", target.container_id)
            return Result(Verdict.ERRORED, str(error))

    def _report(self, probed: _Probed, kind: Kind, result: Result) -> None:
        said = {
            Verdict.FAILURE: ("Unhealthy", "failed"),
            Verdict.WARNING: ("ProbeWarning", "warning"),
            Verdict.ERRORED: ("Unhealthy", "errored and resulted in unknown state"),
        }.get(result.verdict)
        if said is not None:
            reason, verb = said
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
