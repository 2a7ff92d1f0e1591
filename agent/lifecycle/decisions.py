"""The pod state machine: maps what a pod requests and what runs of it to what to do next. No I/O, no clock.

`plan` is called after every change (a new spec, a container's exit, a probe's result, a timer) and is given the whole situation
each time, so no lost event matters. It returns everything that may be done now, in the order in which the worker does it: stop
the pod's old sandbox, create a new one, kill containers, start containers; and when to plan again. The rules are those of
upstream's computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go) and KEP-753 for restartable init containers
("sidecars").

A container instance belongs to a sandbox. Init containers count as done only in the current sandbox: in a new sandbox the pod
starts again, while restart counts continue.
"""

from __future__ import annotations

import functools

from agent.lifecycle import resize
from agent.lifecycle.actions import End, Kill, Kind, Plan, Resize, Situation, Start
from agent.lifecycle.hashing import is_hash_of
from agent.lifecycle.rules import (
    deadline_at,
    initialized,
    is_sidecar,
    old_sandboxes,
    policy_of,
    reported_restarts,
    restarts,
    restarts_all,
    surplus_instances,
)
from agent.runtime_records import ContainerRecord, PodRuntime, State
from kube.api import core_v1


def plan(s: Situation) -> Plan:
    """Decide what to do for a pod that is wanted on this node."""
    deadline = deadline_at(s.pod)
    if deadline is not None and s.now >= deadline:
        return Plan(
            end=End("Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        )
    decisions = _Decisions(s)
    decisions.wake(deadline)
    sandbox_lost, attempt = sandbox_changed(s.runtime)
    trigger = restarts_all(s.pod, s.runtime)
    if sandbox_lost:
        decisions.replace_sandbox(attempt)
    elif trigger is not None:
        decisions.restart_containers(trigger)
    else:
        decisions.ephemeral()
        if decisions.init():
            decisions.main()
    return decisions.plan()


def sandbox_changed(runtime: PodRuntime) -> tuple[bool, int]:
    """Return whether the pod needs a (new) sandbox, and its attempt number."""
    newest = runtime.sandbox
    if newest is None:
        return True, 0
    if not newest.ready or (not newest.ips and not newest.host_network):
        return True, newest.attempt + 1
    return False, newest.attempt


class _Decisions:
    """One run of the state machine: collects what to do."""

    def __init__(self, s: Situation) -> None:
        self.s = s
        self.end: End | None = None
        self.stop_sandbox = False
        self.new_sandbox: int | None = None
        self.restart_all: ContainerRecord | None = None
        self.kills: list[Kill] = []
        self.starts: list[Start] = []
        self.resizes: list[Resize] = []
        self.backing_off: dict[str, float] = {}
        self.wake_at: float | None = None
        sandbox = s.runtime.sandbox
        self.sandbox_id = sandbox.id if sandbox else ""

    @functools.cached_property
    def _reported_restarts(self) -> dict[str, int]:
        return reported_restarts(self.s.pod)

    def plan(self) -> Plan:
        return Plan(
            end=self.end,
            stop_sandbox=self.stop_sandbox,
            new_sandbox=self.new_sandbox,
            restart_all=self.restart_all,
            kill=tuple(self.kills),
            start=tuple(self.starts),
            resize=tuple(self.resizes),
            backing_off=self.backing_off,
            remove=surplus_instances(self.s.runtime),
            remove_sandboxes=old_sandboxes(self.s.runtime),
            wake_at=self.wake_at,
        )

    def wake(self, at: float | None) -> None:
        if at is not None and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    # -- the sandbox ----------------------------------------------------------------------------------------------
    def replace_sandbox(self, attempt: int) -> None:
        """Make a sandbox, unless the pod has run and nothing of it would start again."""
        runtime = self.s.runtime
        if attempt > 0 and runtime.containers and not self._anything_to_start():
            self.end = End()
            return
        self.stop_sandbox = attempt > 0 or bool(runtime.alive)
        retry = self.s.retry_at.get("", 0.0)
        if retry > self.s.now:
            self.wake(retry)
            return
        # What starts in it is decided when it is there.
        self.new_sandbox = attempt

    def _anything_to_start(self) -> bool:
        pod, runtime = self.s.pod, self.s.runtime
        if restarts_all(pod, runtime) is not None:
            return True
        ran = any(record.state is not State.CREATED for record in runtime.containers)
        for container in pod.spec.containers:
            latest = runtime.latest(container.name)
            if latest is None or latest.state is State.CREATED:
                # Not yet started: with policy Never, upstream lets the pod end where a sandbox died under way.
                if policy_of(pod, container) != "Never" or not ran:
                    return True
            elif latest.running or restarts(pod, container, latest):
                if policy_of(pod, container) != "Never":
                    return True
        return False

    def restart_containers(self, trigger: ContainerRecord) -> None:
        """Restart every container for the end of one, when that one may start again."""
        ready = self.s.restart_at(trigger.name, trigger)
        if ready > self.s.now:
            self.backing_off[trigger.name] = ready
            self.wake(ready)
        else:
            self.restart_all = trigger

    # -- containers -----------------------------------------------------------------------------------------------
    def ephemeral(self) -> None:
        """Start debug containers once; they are never restarted, and one that was only made has not been started."""
        for container in self.s.pod.spec.ephemeral_containers:
            record = self.s.runtime.latest(container.name)
            if record is None or record.state is State.CREATED:
                self._start(container.name, Kind.EPHEMERAL)

    def init(self) -> bool:
        """Plan the init containers in their order; True once the main containers may run."""
        pod, runtime = self.s.pod, self.s.runtime
        initialization_over = initialized(pod, runtime)
        for container in pod.spec.init_containers:
            record = runtime.latest(container.name)
            if record is not None and record.sandbox_id != self.sandbox_id:
                record = None
            if is_sidecar(container):
                if not self._sidecar(container, record) and not initialization_over:
                    return False
                continue
            if initialization_over:
                continue
            if record is None or record.state in (State.CREATED, State.UNKNOWN):
                self._start(container.name, Kind.INIT)
                return False
            if record.running:
                self._check_running(container, record)
                return False
            if record.exit_code == 0:
                continue
            if not restarts(pod, container, record):
                self.end = End("Failed")
                return False
            self._restart(container, record, Kind.INIT)
            return False
        return True

    def _sidecar(self, container: core_v1.Container, record: ContainerRecord | None) -> bool:
        """Keep a sidecar running; True when the next init container may start."""
        if record is None or record.state is State.CREATED:
            self._start(container.name, Kind.INIT)
            return False
        if record.running:
            if not self._check_running(container, record):
                return False
            outcome = self.s.outcomes.get(record.id)
            return outcome.started if outcome is not None else container.startup_probe is None
        self._restart(container, record, Kind.INIT)
        return False

    def main(self) -> None:
        """Keep the main containers running, and end the pod when none will run again."""
        pod, runtime = self.s.pod, self.s.runtime
        unfinished = False
        for container in pod.spec.containers:
            record = runtime.latest(container.name)
            if record is None or record.state in (State.CREATED, State.UNKNOWN):
                self._start(container.name, Kind.MAIN)
                unfinished = True
            elif record.running:
                unfinished |= self._check_running(container, record) or policy_of(pod, container) != "Never"
            elif restarts(pod, container, record):
                self._restart(container, record, Kind.MAIN)
                unfinished = True
        if not unfinished and not self.kills:
            self.end = End()

    def _check_running(self, container: core_v1.Container, record: ContainerRecord) -> bool:
        """Kill a running container that changed or whose probes failed; True if it stays."""
        outcome = self.s.outcomes.get(record.id)
        again = policy_of(self.s.pod, container) != "Never"
        if record.hash and not is_hash_of(record.hash, container):
            self.kills.append(
                Kill(record.id, record.name, f"Container {record.name} definition changed, will be restarted")
            )
            return False
        if outcome is not None and outcome.failed:
            message = f"Container {record.name} failed {outcome.failed.lower()} probe"
            if again:
                message += ", will be restarted"
            self.kills.append(Kill(record.id, record.name, message, outcome.failed, outcome.grace))
            return False
        return self._check_size(container, record)

    def _check_size(self, container: core_v1.Container, record: ContainerRecord) -> bool:
        """Resize a container whose spec's resources changed; False if that takes a restart."""
        actuated = self.s.actuated.get(record.id)
        if actuated is None:
            return True
        resources = resize.changed(resize.inherited(container.resources, self.s.pod.spec.resources), actuated)
        if not resources:
            return True
        if resize.needs_restart(container, resources):
            message = f"Container {record.name} resize requires restart"
            self.kills.append(Kill(record.id, record.name, message, for_resize=True))
            return False
        self.resizes.append(Resize(record.id, record.name))
        return True

    def _restart(self, container: core_v1.Container, record: ContainerRecord, kind: Kind) -> None:
        ready = self.s.restart_at(container.name, record)
        if ready > self.s.now:
            self.backing_off[container.name] = ready
            self.wake(ready)
        else:
            self._start(container.name, kind)

    def _start(self, name: str, kind: Kind) -> None:
        retry = self.s.retry_at.get(name, 0.0)
        if retry > self.s.now:
            self.wake(retry)
            return
        latest = self.s.runtime.latest(name)
        # The API has the counts of containers that were removed for a restart of all.
        before = latest.restart_count if latest else self._reported_restarts.get(name)
        self.starts.append(Start(name, kind, 0 if before is None else before + 1))
