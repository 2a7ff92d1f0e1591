"""A simulated pod: the kubelet's decisions, executed on simulated containers.

`step` is called whenever something may have changed. It plans (agent.lifecycle.plan) and executes until nothing is left to do
now, and returns the pod's status and the time of the next step. It neither waits nor sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from agent.interfaces import PodView, ProbeOutcome
from agent.lifecycle import End, Kill, Plan, Situation, Start, find_container, grace_of, termination_waves
from agent.lifecycle import plan as plan_pod
from agent.lifecycle.actions import Kind
from agent.podspec.environment import References
from agent.runtime_records import PodRuntime
from agent.status.container import StatusInputs
from agent.status.phase import ENDED_PHASES
from agent.status.pod import NodeFacts, pod_status
from kube.api import core_v1
from kube.clock import Clock
from wherry.testing.nodes.behaviour import Behaviour
from wherry.testing.nodes.configurations import Configurations
from wherry.testing.nodes.crash_loops import CrashLoops
from wherry.testing.nodes.instances import Instances
from wherry.testing.nodes.mounts import Mounts
from wherry.testing.nodes.pulls import Pulls
from wherry.testing.nodes.scripts import Pull, PullError, Scripts
from wherry.testing.nodes.stepped import Happened, Stepped

MOST_ROUNDS = 100
"""Plans of one step; a script that never rests is continued in the next one."""


class SimulatedPod:
    """One pod on its node."""

    def __init__(
        self,
        pod: core_v1.Pod,
        scripts: Scripts,
        clock: Clock,
        *,
        mounts: Mounts,
        references: References,
        addresses: Callable[[], tuple[str, ...]],
        host_addresses: tuple[str, ...],
        back_off_max: float = 300.0,
    ) -> None:
        self.pod, self.uid = pod, pod.metadata.uid or ""
        self._clock, self._addresses, self.mounts = clock, addresses, mounts
        self._node = NodeFacts(host_addresses)
        self.instances = Instances(self.uid, clock)
        self.behaviour, self.pulls = Behaviour(scripts), Pulls()
        self.crash_loops = CrashLoops(clock, back_off_max)
        self.configurations = Configurations(references)
        self.end: End | None = None
        self.stopping_since: float | None = None
        self._events: list[Happened] = []
        self.ready: dict[str, bool] = {}
        self._reported: core_v1.PodStatus | None = None

    @property
    def runtime(self) -> PodRuntime:
        """Its sandboxes and containers."""
        return self.instances.runtime

    @property
    def terminating(self) -> bool:
        """The pod is being deleted, or has ended."""
        deleted = self.pod.metadata.deletion_timestamp is not None
        return deleted or self.end is not None or self.pod.status.phase in ENDED_PHASES

    # -- what tests do to it --------------------------------------------------------------------------------------
    def lose_power(self) -> None:
        """End all containers and the sandbox without a trace, as a node does that loses power."""
        self.instances.lose_power()
        self.mounts.unmount()

    def set_ready(self, *, ready: bool, container: str = "") -> None:
        """Set the outcome of readiness probes, of one container or of all, from now on."""
        for each in self.pod.spec.containers:
            if container in ("", each.name):
                self.ready[each.name] = ready

    def view(self) -> PodView:
        """Return the pod as the kubelet's API shows it."""
        pod = self.pod if self._reported is None else msgspec.structs.replace(self.pod, status=self._reported)
        return PodView(pod, self.runtime.containers, self.runtime.sandbox, self.terminating)

    @property
    def misses_objects(self) -> bool:
        """It waits for an object that a volume or a container's environment names."""
        return not self.terminating and (self.mounts.retry_at is not None or bool(self.configurations.waiting))

    def retry(self) -> None:
        """Try again in the next step what has failed for want of an object."""
        self.mounts.retry()
        self.configurations.retry()

    # -- one step -------------------------------------------------------------------------------------------------
    async def mount(self) -> None:
        """Mount its volumes if that is due; its containers start in the step after it."""
        if not self.terminating:
            self._events += await self.mounts.set_up(self.pod, self.now())

    def step(self) -> Stepped:
        """Do what is due now."""
        now = self.now()
        self.instances.end_due(now)
        wake_at, delete = None, False
        finished = False
        if not self.terminating:
            wake_at = self._sync(now)
        if self.terminating:
            finished = self._terminate(now)
            delete = finished and self.pod.metadata.deletion_timestamp is not None
            wake_at = None
        status = self._reported = self._status(now, finished=finished)
        changes = (each.changes_at(now) for each in self.instances.running())
        wake_at = min((at for at in (wake_at, *changes) if at is not None), default=None)
        events, self._events = tuple(self._events), []
        return Stepped(status, delete, wake_at, events)

    def _sync(self, now: float) -> float | None:
        for _ in range(MOST_ROUNDS):
            decided = plan_pod(self._situation(now))
            self._events += self.crash_loops.show(self.pod, decided.backing_off, self.runtime)
            if decided.end is not None:
                self.end = decided.end
                if decided.end.reason:
                    self._event("Normal", decided.end.reason, decided.end.message)
                return None
            if not self._execute(decided, now):
                due = (decided.wake_at, self.mounts.retry_at, *self.pulls.changes())
                return min((at for at in due if at is not None and at > now), default=None)
        return now

    def _situation(self, now: float) -> Situation:
        retry_at = {**self.pulls.retry_at, **self.configurations.retry_at}
        ready_at = partial(self.crash_loops.ready_at, self.pod)
        return Situation(self.pod, self.runtime, now, self._outcomes(now), ready_at, retry_at)

    def _outcomes(self, now: float) -> dict[str, ProbeOutcome]:
        found = {}
        for each in self.instances.running():
            outcome = each.outcome_of_probes(now)
            if (ready := self.ready.get(each.record.name)) is not None:
                outcome = replace(outcome, ready=ready)
            found[each.record.id] = outcome
        return found

    # -- executing a plan -----------------------------------------------------------------------------------------
    def _execute(self, decided: Plan, now: float) -> bool:
        """Execute a plan; True if something was done, so that it is worth planning again."""
        done = False
        for container_id in decided.remove:
            self.instances.remove(container_id)
        if decided.stop_sandbox:
            self.instances.kill_all(now)
        if decided.new_sandbox is not None and self.mounts.done:
            host_network = bool(self.pod.spec.host_network)
            ips = () if host_network else self._addresses()
            self.instances.add_sandbox(decided.new_sandbox, ips, now, host_network=host_network)
            return True
        if decided.restart_all is not None:
            self._restart_all(decided.restart_all.name, now)
            return True
        for kill in decided.kill:
            done |= self._stop(kill, now, grace_of(self.pod, kill.grace))
        for start in decided.start if self.mounts.done else ():
            done |= self._start(start, now)
            if start.kind is Kind.INIT:
                break  # what may follow depends on how it goes
        return done

    def _start(self, start: Start, now: float) -> bool:
        """Start a container, or pull its image; True if something was done."""
        found = find_container(self.pod, start.name)
        if found is None or self.runtime.sandbox is None:
            return False
        container, kind = found
        outcome = self.behaviour.next(self.pod, container, kind, start)
        if isinstance(outcome, Pull):
            self.pulls.begin(start.name, outcome.seconds, now)
            return True
        if isinstance(outcome, PullError):
            self._events.append(self.pulls.fail(container, outcome, now))
            return True
        self.pulls.succeeded(start.name)
        if (failure := self.configurations.check(self.pod, container, now)) is not None:
            self.behaviour.keep(start.name, outcome)
            self._events.append(failure)
            return True
        self.crash_loops.restarted(self.pod, start.name, self.runtime)
        self.instances.add(container, kind, start, outcome, now)
        self.instances.end_due(now)  # one that exits at once has ended
        return True

    def _stop(self, kill: Kill, now: float, grace: float) -> bool:
        """Begin to stop a running container; True if it has stopped at once."""
        each = self.instances.containers[kill.id]
        if each.stops_at is None:
            self._event("Normal", "Killing", kill.message or f"Stopping container {kill.name}", kill.name)
            if kill.probe:
                self._event("Warning", "Unhealthy", f"{kill.probe} probe failed", kill.name)
        each.stop(now, grace)
        self.instances.end_due(now)
        return not each.record.running

    def _restart_all(self, trigger: str, now: float) -> None:
        self.crash_loops.restarted(self.pod, trigger, self.runtime)
        debug = {container.name for container in self.pod.spec.ephemeral_containers}
        self.instances.kill_all(now, but=debug)
        self.instances.remove_all(but=debug)

    def _terminate(self, now: float) -> bool:
        """Stop the containers, sidecars last; True when none runs any more."""
        if self.stopping_since is None:
            self.stopping_since = now
        grace = grace_of(self.pod)
        deletion = self.pod.metadata.deletion_grace_period_seconds
        left = 0.0 if deletion == 0 else max(0.0, self.stopping_since + grace - now)
        while waves := termination_waves(self.pod, self.runtime):
            stopped = [self._stop(Kill(each.id, each.name, ""), now, left) for each in waves[0]]
            if not all(stopped):
                return False
        return True

    # -- status ---------------------------------------------------------------------------------------------------
    def _status(self, now: float, *, finished: bool) -> core_v1.PodStatus:
        waiting = {**self.crash_loops.waiting, **self.pulls.waiting(now), **self.configurations.waiting}
        known = StatusInputs(self._outcomes(now), {} if finished else waiting, ended=self.terminating)
        return pod_status(self.pod, self.runtime, known, self._node, now, end=self.end, finished=finished)

    def reported(self, status: core_v1.PodStatus) -> None:
        """Take over the status that the API has now: the next one is computed from it."""
        self.pod = msgspec.structs.replace(self.pod, status=status)

    def _event(self, type: str, reason: str, message: str, container: str = "") -> None:
        self._events.append(Happened(type, reason, message, container))

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._clock.now().timestamp()
