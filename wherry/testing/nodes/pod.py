"""A simulated pod: the kubelet's decisions, executed on simulated containers.

`step` is called whenever something may have changed. It plans (agent.lifecycle.plan) and executes until nothing is left to do
now, and returns the pod's status and the time of the next step. It neither waits nor sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agent.backoff import BackOff
from agent.interfaces import PodView, ProbeOutcome
from agent.lifecycle import (
    End,
    Kill,
    Plan,
    Situation,
    Start,
    container_hash,
    find_container,
    grace_of,
    is_sidecar,
    policy_of,
    termination_waves,
)
from agent.lifecycle import plan as plan_pod
from agent.lifecycle.actions import Kind
from agent.pods.crash_loop import CrashLoopBackOff
from agent.runtime_records import PodRuntime, SandboxRecord, State
from agent.status.container import StatusInputs, Waiting
from agent.status.phase import ENDED_PHASES
from agent.status.pod import NodeFacts, pod_status
from kube.api import core_v1
from kube.clock import Clock
from wherry.testing.nodes import scripts
from wherry.testing.nodes.container import KILLED, SimulatedContainer, new_record
from wherry.testing.nodes.log import StreamName
from wherry.testing.nodes.scripts import Exit, Pull, PullError, Run, Scripts

MOST_ROUNDS = 100
"""Plans of one step; a script that never rests is continued in the next one."""
PULL_BACK_OFF = (10.0, 300.0)
SHOWN_SECONDS = 1.0
"""Time for which a failed pull shows its own reason, before ImagePullBackOff."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the pod to record."""

    type: str
    reason: str
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class Stepped:
    """Result of a step: the status, whether the pod is to be deleted in the API, and when the next step is due."""

    status: core_v1.PodStatus
    delete: bool
    wake_at: float | None
    events: tuple[Happened, ...]


@dataclass(slots=True)
class _PullFailure:
    at: float
    error: PullError


class SimulatedPod:
    """One pod on its node."""

    def __init__(
        self,
        pod: core_v1.Pod,
        scripts: Scripts,
        clock: Clock,
        *,
        addresses: Callable[[], tuple[str, ...]],
        host_addresses: tuple[str, ...],
        back_off_max: float = 300.0,
    ) -> None:
        self.pod, self.uid = pod, pod.metadata.uid or ""
        self._scripts, self._clock, self._addresses = scripts, clock, addresses
        self._node = NodeFacts(host_addresses)
        self.runtime = PodRuntime()
        self.containers: dict[str, SimulatedContainer] = {}
        """By container ID, also those that have ended as long as the kubelet would keep them."""
        self._crash_loop = CrashLoopBackOff(clock, back_off_max)
        self._pull_back_off = BackOff(*PULL_BACK_OFF)
        self._position: dict[str, int] = {}
        """By container name: the steps of its script that were done."""
        self._failed_pulls: dict[str, _PullFailure] = {}
        self._retry_at: dict[str, float] = {}
        self._waiting: dict[str, Waiting] = {}
        self._end: End | None = None
        self._stopping_since: float | None = None
        self._created = 0
        self._events: list[Happened] = []
        self._ready: dict[str, bool] = {}
        self._reported: core_v1.PodStatus | None = None

    @property
    def terminating(self) -> bool:
        """The pod is being deleted, or has ended."""
        deleted = self.pod.metadata.deletion_timestamp is not None
        return deleted or self._end is not None or self.pod.status.phase in ENDED_PHASES

    def lose_power(self) -> None:
        """End all containers and the sandbox without a trace, as a node does that loses power."""
        for record in self.runtime.alive:
            gone = replace(record, state=State.EXITED, exit_code=KILLED, reason="Error", finished_at=self._now())
            self.runtime = self.runtime.with_container(gone)
            self.containers[record.id].log.close()
        for sandbox in self.runtime.sandboxes:
            self.runtime = self.runtime.with_sandbox(replace(sandbox, ready=False))

    def set_ready(self, *, ready: bool, container: str = "") -> None:
        """Set the outcome of readiness probes, of one container or of all, from now on."""
        for each in self.pod.spec.containers:
            if container in ("", each.name):
                self._ready[each.name] = ready

    def kill(self, container: str, code: int = KILLED, reason: str = "") -> bool:
        """End a running container with an exit code, as by a signal or for want of memory; False if it does not run."""
        record = self.runtime.latest(container)
        if record is None or not record.running:
            return False
        self._finish(record.id, self._now(), code, reason, "")
        return True

    def logs(self, container: str, *, previous: bool = False) -> str | None:
        """Return the text of a container's current or previous instance, None if there is none."""
        record = self.runtime.previous(container) if previous else self.runtime.latest(container)
        return self.containers[record.id].log.text() if record is not None and record.id in self.containers else None

    def write_log(self, container: str, text: str, stream: StreamName = "stdout") -> bool:
        """Add lines to the log of a running container; False if it does not run."""
        record = self.runtime.latest(container)
        if record is None or not record.running:
            return False
        self.containers[record.id].log.write(text, self._clock.now(), stream)
        return True

    def view(self) -> PodView:
        """Return the pod as the kubelet's API shows it."""
        pod = self.pod if self._reported is None else msgspec.structs.replace(self.pod, status=self._reported)
        return PodView(pod, self.runtime.containers, self.runtime.sandbox, self.terminating)

    # -- one step -------------------------------------------------------------------------------------------------
    def step(self) -> Stepped:
        """Do what is due now."""
        now = self._now()
        self._advance(now)
        wake_at, delete = None, False
        finished = False
        if not self.terminating:
            wake_at = self._sync(now)
        if self.terminating:
            finished = self._terminate(now)
            delete = finished and self.pod.metadata.deletion_timestamp is not None
            wake_at = None
        status = self._reported = self._status(now, finished=finished)
        changes = (each.changes_at(now) for each in self._running())
        wake_at = min((at for at in (wake_at, *changes) if at is not None), default=None)
        events, self._events = tuple(self._events), []
        return Stepped(status, delete, wake_at, events)

    def _advance(self, now: float) -> None:
        """End the containers whose time has come."""
        for each in self._running():
            ends = each.ends_at()
            if ends is not None and ends <= now:
                self._finish(each.record.id, *each.exit())

    def _sync(self, now: float) -> float | None:
        for _ in range(MOST_ROUNDS):
            decided = plan_pod(self._situation(now))
            self._show_back_off(decided)
            if decided.end is not None:
                self._end = decided.end
                if decided.end.reason:
                    self._event("Normal", decided.end.reason, decided.end.message)
                return None
            if not self._execute(decided, now):
                due = [failed.at + SHOWN_SECONDS for failed in self._failed_pulls.values()]
                return min((at for at in (decided.wake_at, *due) if at is not None and at > now), default=None)
        return now

    def _situation(self, now: float) -> Situation:
        def ready_at(name: str, record: Any) -> float:
            return self._crash_loop.ready_at(self.pod, name, record)

        return Situation(self.pod, self.runtime, now, self._outcomes(now), ready_at, self._retry_at)

    def _outcomes(self, now: float) -> dict[str, ProbeOutcome]:
        found = {}
        for each in self._running():
            outcome = each.outcome_of_probes(now)
            if (ready := self._ready.get(each.record.name)) is not None:
                outcome = replace(outcome, ready=ready)
            found[each.record.id] = outcome
        return found

    def _execute(self, decided: Plan, now: float) -> bool:
        """Execute a plan; True if something was done, so that it is worth planning again."""
        done = False
        for container_id in decided.remove:
            self.runtime = self.runtime.without_container(container_id)
            self.containers.pop(container_id, None)
        if decided.stop_sandbox:
            for record in self.runtime.alive:
                self._finish(record.id, now, KILLED, "", "")
        if decided.new_sandbox is not None:
            self._add_sandbox(decided.new_sandbox, now)
            return True
        if decided.restart_all is not None:
            self._restart_all(decided.restart_all.name, now)
            return True
        for kill in decided.kill:
            done |= self._stop(kill, now, grace_of(self.pod, kill.grace))
        for start in decided.start:
            done |= self._start(start, now)
            if start.kind is Kind.INIT:
                break  # what may follow depends on how it goes
        return done

    # -- sandboxes and containers ---------------------------------------------------------------------------------
    def _add_sandbox(self, attempt: int, now: float) -> None:
        host_network = bool(self.pod.spec.host_network)
        ips = () if host_network else self._addresses()
        sandbox = SandboxRecord(
            id=f"{self.uid}-{attempt}", ready=True, attempt=attempt, created_at=now, ips=ips, host_network=host_network
        )
        self.runtime = self.runtime.with_sandbox(sandbox)

    def _start(self, start: Start, now: float) -> bool:
        """Start a container by its script; True if it was started."""
        found = find_container(self.pod, start.name)
        sandbox = self.runtime.sandbox
        if found is None or sandbox is None:
            return False
        container, kind = found
        outcome = self._next_outcome(container, kind, start)
        if isinstance(outcome, Pull):
            self._retry_at[start.name] = now + outcome.seconds
            return True
        if isinstance(outcome, PullError):
            self._pull_failed(container, outcome, now)
            return True
        self._crash_loop.count(self.pod, start.name, self.runtime.latest(start.name))
        self._created += 1
        record = new_record(
            container,
            id=f"{self.uid}-{self._created}",
            restart_count=start.restart_count,
            sandbox_id=sandbox.id,
            hash=container_hash(container),
            created_at=now,
            started_at=now,
        )
        for state in (self._retry_at, self._waiting, self._failed_pulls):
            state.pop(start.name, None)
        self.runtime = self.runtime.with_container(record)
        each = self.containers[record.id] = SimulatedContainer(container, kind, outcome, record)
        each.log.write(outcome.logs, self._clock.now())
        self._advance(now)  # one that exits at once has ended
        return True

    def _next_outcome(
        self, container: core_v1.Container | core_v1.EphemeralContainer, kind: Kind, start: Start
    ) -> scripts.Outcome:
        metadata = self.pod.metadata
        script = self._scripts.find(metadata.namespace or "", metadata.name or "", start.name)
        if script is None:
            return _default(self.pod, container, kind)
        position = self._position.get(start.name, 0)
        self._position[start.name] = position + 1
        step = script.steps[min(position, len(script.steps) - 1)]
        if isinstance(step, Run | Exit | Pull | PullError):
            return step
        return step(
            scripts.Start(
                metadata.namespace or "",
                metadata.name or "",
                start.name,
                container.image or "",
                start.restart_count,
                tuple([*container.command, *container.args]),
                dict(metadata.labels),
            )
        )

    def _pull_failed(
        self, container: core_v1.Container | core_v1.EphemeralContainer, error: PullError, now: float
    ) -> None:
        name, image = container.name, container.image or ""
        delay = self._pull_back_off.next(image, now)
        self._failed_pulls[name] = _PullFailure(now, error)
        self._retry_at[name] = now + delay
        self._event("Warning", "Failed", f'Failed to pull image "{image}": {error.message}', name)

    def _stop(self, kill: Kill, now: float, grace: float) -> bool:
        """Begin to stop a running container; True if it has stopped at once."""
        each = self.containers[kill.id]
        if each.stops_at is None:
            self._event("Normal", "Killing", kill.message or f"Stopping container {kill.name}", kill.name)
            if kill.probe:
                self._event("Warning", "Unhealthy", f"{kill.probe} probe failed", kill.name)
        each.stop(now, grace)
        self._advance(now)
        return not each.record.running

    def _restart_all(self, trigger: str, now: float) -> None:
        self._crash_loop.count(self.pod, trigger, self.runtime.latest(trigger))
        debug = {container.name for container in self.pod.spec.ephemeral_containers}
        for record in self.runtime.alive:
            if record.name not in debug:
                self._finish(record.id, now, KILLED, "", "")
        for record in self.runtime.containers:
            if record.name not in debug:
                self.runtime = self.runtime.without_container(record.id)
                self.containers.pop(record.id, None)

    def _finish(self, container_id: str, at: float, code: int, reason: str, message: str) -> None:
        record = self.runtime.find(container_id)
        if record is None or not record.running:
            return
        ended = replace(
            record,
            state=State.EXITED,
            finished_at=at,
            exit_code=code,
            reason=reason or ("" if code else "Completed"),
            message=message,
        )
        self.runtime = self.runtime.with_container(ended)
        self.containers[container_id].record = ended
        self.containers[container_id].log.close()

    def _running(self) -> list[SimulatedContainer]:
        return [each for each in self.containers.values() if each.record.running]

    # -- the pod's end --------------------------------------------------------------------------------------------
    def _terminate(self, now: float) -> bool:
        """Stop the containers, sidecars last; True when none runs any more."""
        if self._stopping_since is None:
            self._stopping_since = now
        grace = grace_of(self.pod)
        deletion = self.pod.metadata.deletion_grace_period_seconds
        left = 0.0 if deletion == 0 else max(0.0, self._stopping_since + grace - now)
        while waves := termination_waves(self.pod, self.runtime):
            stopped = [self._stop(Kill(each.id, each.name, ""), now, left) for each in waves[0]]
            if not all(stopped):
                return False
        return True

    # -- status ---------------------------------------------------------------------------------------------------
    def _show_back_off(self, decided: Plan) -> None:
        for name in [
            n for n, w in self._waiting.items() if w.reason == "CrashLoopBackOff" and n not in decided.backing_off
        ]:
            del self._waiting[name]
        for name in decided.backing_off:
            self._waiting[name] = self._crash_loop.waiting(self.pod, name)
            if message := self._crash_loop.event(self.pod, name, self.runtime.latest(name)):
                self._event("Warning", "BackOff", message, name)

    def _status(self, now: float, *, finished: bool) -> core_v1.PodStatus:
        waiting = dict(self._waiting)
        for name, failed in self._failed_pulls.items():
            found = find_container(self.pod, name)
            image = (found[0].image if found else "") or ""
            if now < failed.at + SHOWN_SECONDS:
                waiting[name] = Waiting(failed.error.reason, failed.error.message)
            else:
                text = f'Back-off pulling image "{image}": {failed.error.reason}: {failed.error.message}'
                waiting[name] = Waiting("ImagePullBackOff", text)
        known = StatusInputs(self._outcomes(now), {} if finished else waiting, ended=self.terminating)
        return pod_status(self.pod, self.runtime, known, self._node, now, end=self._end, finished=finished)

    def reported(self, status: core_v1.PodStatus) -> None:
        """Take over the status that the API has now: the next one is computed from it."""
        self.pod = msgspec.structs.replace(self.pod, status=status)

    def _event(self, type: str, reason: str, message: str, container: str = "") -> None:
        self._events.append(Happened(type, reason, message, container))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _default(pod: core_v1.Pod, container: core_v1.Container | core_v1.EphemeralContainer, kind: Kind) -> Run | Exit:
    """Return the behaviour without a script: what is to run for ever runs, and what is to complete completes."""
    if kind is Kind.EPHEMERAL:
        return Run()
    assert isinstance(container, core_v1.Container)
    if kind is Kind.INIT:
        return Run() if is_sidecar(container) else Exit(0)
    return Run() if policy_of(pod, container) == "Always" else Exit(0)
