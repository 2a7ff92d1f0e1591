"""Reports one pod, from its state: its status to the API, its events, its view for the server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import msgspec

from agent import step_shares
from agent.interfaces import PodView, ProbeOutcome
from agent.lifecycle import find_container
from agent.pods.allocation import as_actuated, size_of
from agent.pods.dependencies import PodDependencies
from agent.pods.exits import Exits
from agent.pods.resize_events import ResizeEvents
from agent.pods.setup import field_path
from agent.pods.state import PodState
from agent.status.container import StatusInputs
from agent.status.patch import OURS
from agent.status.phase import ENDED_PHASES
from agent.status.pod import NodeFacts, pod_status, rejected_status
from kube.api import core_v1

LATE_SECONDS = 0.5
"""Time that a step may take before the status reports what was reached before it."""


class PodReporter:
    """Reports a pod's state."""

    def __init__(self, state: PodState, deps: PodDependencies) -> None:
        self._state, self._deps = state, deps
        self._paused = False
        self._late: asyncio.Task[None] | None = None
        self.last_status: core_v1.PodStatus | None = None
        """The last status that was reported, or would have been."""
        self.resize_events = ResizeEvents(self.event)
        self._exits = Exits(deps.recorder.decisions, state.runtime)

    def basis(self) -> core_v1.Pod:
        """Return the pod with the status that was last reported, and others' conditions as they are now."""
        pod, shown = self._state.pod, self._state.api_pod
        reported = self._deps.writer.reported(shown.metadata.uid or "") if shown is not None else None
        reported = reported or self.last_status
        if reported is None:
            return pod
        conditions = [c for c in reported.conditions if c.type in OURS]
        conditions += [c for c in pod.status.conditions if c.type not in OURS]
        return msgspec.structs.replace(pod, status=msgspec.structs.replace(reported, conditions=conditions))

    def outcomes(self) -> dict[str, ProbeOutcome]:
        """Return the outcomes of the pod's probes, by container ID."""
        found = ((c.id, self._deps.prober.outcome(c.id)) for c in self._state.runtime.containers if c.running)
        return {container_id: outcome for container_id, outcome in found if outcome is not None}

    def status(self) -> core_v1.PodStatus:
        """Return the pod's status as it is now."""
        state, deps, basis = self._state, self._deps, self.basis()
        termination, resize = state.termination, state.resize
        if not state.runtime.sandboxes and not state.runtime.containers:
            if basis.status.phase in ENDED_PHASES:
                return basis.status  # the outcome was reported, and nothing is left to report more
            if termination.rejection is not None:
                return rejected_status(basis, termination.rejection, deps.now())
        known = StatusInputs(
            outcomes=self.outcomes(),
            waiting=state.waiting,
            ended=termination.cause is not None or termination.finished,
            actuated=resize.actuated.containers if resize.actuated is not None else {},
            allocated=resize.allocated if resize.pending is not None else None,
            allocated_containers=size_of(resize.allocated).containers if resize.pending is not None else {},
            actual=as_actuated(resize.allocated, state.runtime, resize.actuated)
            if resize.actuated is not None and state.resizing
            else None,
            pending_resize=resize.pending,
            resize_error=resize.error,
        )
        status = pod_status(
            basis,
            state.runtime,
            known,
            NodeFacts(deps.node.host_ips),
            deps.now(),
            end=termination.cause,
            finished=termination.finished,
        )
        deps.managers.report_health(state.pod, status)
        return status

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Report nothing meanwhile but the pod's addresses, by which network policies go, if it takes long."""
        self._paused = True
        self.publish_late()
        try:
            yield
        finally:
            self._paused = False

    def publish(self) -> None:
        """Report the pod's status where it changed."""
        began = time.thread_time()
        try:
            self._publish()
        finally:
            self._deps.writer.rate.charge(self._namespace, time.thread_time() - began)

    @property
    def _namespace(self) -> str:
        return self._state.pod.metadata.namespace or ""

    def _publish(self) -> None:
        self.cancel_late()
        self._exits.record(self._state.pod, self._state.runtime)
        status = self.status()
        if self._paused:
            last = self.last_status or self.basis().status
            if not status.pod_ips or status.pod_ips == last.pod_ips:
                return
            status = msgspec.structs.replace(last, pod_ip=status.pod_ip, pod_ips=status.pod_ips)
        else:
            self._deps.startup.status_updated(self._state.pod, status, self._deps.now())
        self.last_status = status
        shown = self._state.api_pod
        if self._state.in_source and shown is not None:
            self._deps.writer.set(shown, status)

    def publish_during_sync(self) -> None:
        """Report what is new while a sync is under way; of a pod that starts, the sync's end will report more."""
        last = self.last_status
        if last is not None and any(status.state and status.state.running for status in last.container_statuses):
            self.publish_soon()
        else:
            self.publish_late()

    def publish_soon(self) -> None:
        """Report the status now, or later if those of the namespace's pods have taken much time."""
        if self._deps.writer.rate.delay(self._namespace):
            self.publish_late()
        else:
            self.publish()

    def publish_late(self) -> None:
        """Report the status only if the step that follows takes long: soon there will be more to report."""
        if self._late is None:
            self._late = asyncio.create_task(self._late_status(), name=f"late status of pod {self._state.uid}")

    async def _late_status(self) -> None:
        await step_shares.charged(self._wait_and_publish(), self._namespace)

    async def _wait_and_publish(self) -> None:
        await self._deps.clock.sleep(LATE_SECONDS)
        while delay := self._deps.writer.rate.delay(self._namespace):  # other pods' statuses may come first
            await self._deps.clock.sleep(delay)
        self._late = None
        self.publish()

    def cancel_late(self) -> None:
        """Drop a late report."""
        if self._late is not None and self._late is not asyncio.current_task():
            self._late.cancel()
        self._late = None

    def event(self, kind: str, reason: str, message: str, container: str = "", *, grounds: str = "") -> None:
        """Record an event about the pod, or about one of its containers; `grounds` are for the journal."""
        pod = self._state.pod
        found = find_container(pod, container) if container else None
        path = field_path(found[1], container) if found else ""
        self._deps.recorder.event(pod, kind, reason, message, field_path=path, grounds=grounds)

    def decided(self, text: str) -> None:
        """Record a decision about the pod in the journal."""
        self._deps.recorder.decisions.record(self._state.pod, text)

    def view(self) -> PodView:
        """Return the pod as the server shows it."""
        state, last = self._state, self.last_status
        pod = msgspec.structs.replace(state.pod, status=last) if last is not None else state.pod
        return PodView(
            pod,
            state.runtime.containers,
            state.runtime.sandbox,
            state.terminating,
            state.static,
            released=state.termination.torn_down,
            shortened=state.termination.grace is not None,
        )
