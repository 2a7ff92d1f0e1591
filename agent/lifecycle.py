"""The pod state machine: what a pod asks for and what runs of it, in; what to do next, out. No I/O, no clock.

`plan` is called after every change (a new spec, a container's exit, a probe's verdict, a timer) and is given the whole
situation each time, so nothing is lost with an event. It answers with everything that may be done now, in the order in
which the worker does it: stop the pod's old sandbox, make a new one, kill containers, start containers. What
has to wait is told with the moment to look again. The rules are those of upstream's computePodActions
(pkg/kubelet/kuberuntime/kuberuntime_manager.go) and KEP-753 for restartable init containers ("sidecars").

A container instance belongs to a sandbox. Init containers count as done only in the current sandbox: a new sandbox is a
pod that starts anew, while restart counts go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from agent import resize
from agent.contracts import ProbeOutcome
from agent.records import ContainerRecord, PodRuntime, State
from kube.api import core_v1
from kube.clock import parse_time


class Kind(Enum):
    """Which of the pod's lists a container stands in."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision depends on. Times are seconds since the epoch."""

    pod: core_v1.Pod
    runtime: PodRuntime
    now: float
    outcomes: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    """By container ID."""
    ready_at: Callable[[str, ContainerRecord], float] = lambda name, record: record.finished_at
    """From when a container that exited may start again: its crash back-off."""
    retry_at: Mapping[str, float] = field(default_factory=dict)
    """By container name: earliest moment after a failure to start; "" is the sandbox."""
    applied: Mapping[str, core_v1.ResourceRequirements] = field(default_factory=dict)
    """By container ID: the resources that the container was last given, where that is known."""
    hold_resize: bool = False
    """The node cannot hold the pod's new size."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a running container; `grace` None means the pod's own."""

    id: str
    name: str
    message: str
    probe: str = ""
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container as instance number `restart_count`."""

    name: str
    kind: Kind
    restart_count: int = 0


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a running container the resources of its spec."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class End:
    """The pod has come to an end on this node: kill what is left and keep the phase."""

    phase: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order, and when to look again at the latest."""

    end: End | None = None
    stop_sandbox: bool = False
    new_sandbox: int | None = None
    """The attempt number of the sandbox to make."""
    kill: tuple[Kill, ...] = ()
    resize: tuple[Resize, ...] = ()
    start: tuple[Start, ...] = ()
    backing_off: Mapping[str, float] = field(default_factory=dict)
    """Containers in crash back-off: name to the moment it ends."""
    remove: tuple[str, ...] = ()
    """Dead container instances that nobody needs any more."""
    remove_sandboxes: tuple[str, ...] = ()
    """Dead sandboxes before the newest, whose containers are gone."""
    wake_at: float | None = None


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
    if sandbox_lost:
        decisions.renew_sandbox(attempt)
    else:
        decisions.ephemeral()
        if decisions.init():
            decisions.main()
    return decisions.plan()


def sandbox_changed(runtime: PodRuntime) -> tuple[bool, int]:
    """Tell whether the pod needs a (new) sandbox, and its attempt number."""
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
        self.kills: list[Kill] = []
        self.starts: list[Start] = []
        self.resizes: list[Resize] = []
        self.backing_off: dict[str, float] = {}
        self.wake_at: float | None = None
        sandbox = s.runtime.sandbox
        self.sandbox_id = sandbox.id if sandbox else ""

    def plan(self) -> Plan:
        return Plan(
            end=self.end,
            stop_sandbox=self.stop_sandbox,
            new_sandbox=self.new_sandbox,
            kill=tuple(self.kills),
            start=tuple(self.starts),
            resize=tuple(self.resizes),
            backing_off=self.backing_off,
            remove=superfluous(self.s.runtime),
            remove_sandboxes=old_sandboxes(self.s.runtime),
            wake_at=self.wake_at,
        )

    def wake(self, at: float | None) -> None:
        if at is not None and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    # -- the sandbox ----------------------------------------------------------------------------------------------
    def renew_sandbox(self, attempt: int) -> None:
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
        for container in pod.spec.containers:
            latest = runtime.latest(container.name)
            if latest is None:
                # Not yet started: with policy Never, upstream lets the pod end where a sandbox died under way.
                if policy_of(pod, container) != "Never" or not runtime.containers:
                    return True
            elif latest.running or restarts(pod, container, latest):
                if policy_of(pod, container) != "Never":
                    return True
        return False

    # -- containers -----------------------------------------------------------------------------------------------
    def ephemeral(self) -> None:
        """Start debug containers once; they are never restarted."""
        for container in self.s.pod.spec.ephemeral_containers:
            if self.s.runtime.latest(container.name) is None:
                self._start(container.name, Kind.EPHEMERAL)

    def init(self) -> bool:
        """Bring the init containers forward in their order; True once the main containers may run."""
        pod, runtime = self.s.pod, self.s.runtime
        begun = main_begun(pod, runtime)
        for container in pod.spec.init_containers:
            record = runtime.latest(container.name)
            if record is not None and record.sandbox_id != self.sandbox_id:
                record = None
            if is_sidecar(container):
                if not self._sidecar(container, record) and not begun:
                    return False
                continue
            if begun:
                continue
            if record is None or record.state in (State.CREATED, State.UNKNOWN):
                self._start(container.name, Kind.INIT)
                return False
            if record.running:
                self._judge(container, record)
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
            if not self._judge(container, record):
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
                unfinished |= self._judge(container, record) or policy_of(pod, container) != "Never"
            elif restarts(pod, container, record):
                self._restart(container, record, Kind.MAIN)
                unfinished = True
        if not unfinished and not self.kills:
            self.end = End()

    def _judge(self, container: core_v1.Container, record: ContainerRecord) -> bool:
        """Kill a running container that changed or whose probes failed; True where it stays."""
        outcome = self.s.outcomes.get(record.id)
        again = policy_of(self.s.pod, container) != "Never"
        if record.hash and record.hash != container_hash(container):
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
        return self._fits_its_size(container, record)

    def _fits_its_size(self, container: core_v1.Container, record: ContainerRecord) -> bool:
        """Resize a container whose spec's resources changed; False where that takes a restart."""
        applied = self.s.applied.get(record.id)
        if applied is None or self.s.hold_resize:
            return True
        resources = resize.changed(container, applied)
        if not resources:
            return True
        if resize.needs_restart(container, resources):
            self.kills.append(Kill(record.id, record.name, f"Container {record.name} resize requires restart"))
            return False
        self.resizes.append(Resize(record.id, record.name))
        return True

    def _restart(self, container: core_v1.Container, record: ContainerRecord, kind: Kind) -> None:
        ready = self.s.ready_at(container.name, record)
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
        self.starts.append(Start(name, kind, latest.restart_count + 1 if latest else 0))


# -- rules that others need too ---------------------------------------------------------------------------------------
def is_sidecar(container: core_v1.Container) -> bool:
    """Tell whether an init container is restartable (KEP-753)."""
    return container.restart_policy == "Always"


def policy_of(pod: core_v1.Pod, container: core_v1.Container | core_v1.EphemeralContainer) -> str:
    """Return the restart policy that holds for a container: its own, or the pod's."""
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    if container.restart_policy is None and policy == "Always":
        if any(container is init for init in pod.spec.init_containers):
            return "OnFailure"  # an init container that has succeeded stays done
    return policy


def restarts(pod: core_v1.Pod, container: core_v1.Container, record: ContainerRecord) -> bool:
    """Tell whether a container that ended like this one is to be started again."""
    if not record.exited:
        return record.state is State.CREATED
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if rule.action == "Restart" and codes is not None:
            if (record.exit_code in codes.values) == (codes.operator == "In"):
                return True
    policy = policy_of(pod, container)
    return policy == "Always" or (policy == "OnFailure" and record.exit_code != 0)


def main_begun(pod: core_v1.Pod, runtime: PodRuntime) -> bool:
    """Tell whether a main container was ever made in the current sandbox: then initialisation is over."""
    sandbox = runtime.sandbox
    names = {container.name for container in pod.spec.containers}
    return sandbox is not None and any(
        record.name in names and record.sandbox_id == sandbox.id for record in runtime.containers
    )


def superfluous(runtime: PodRuntime) -> tuple[str, ...]:
    """Choose the dead instances beyond the newest and the one before it (for `logs --previous`)."""
    seen: dict[str, int] = {}
    gone = []
    for record in runtime.containers:
        seen[record.name] = seen.get(record.name, 0) + 1
        if seen[record.name] > 2 and not record.running:
            gone.append(record.id)
    return tuple(gone)


def old_sandboxes(runtime: PodRuntime) -> tuple[str, ...]:
    """Choose the dead sandboxes that hold no container: removing one removes its containers and their counts."""
    holding = {record.sandbox_id for record in runtime.containers}
    return tuple(s.id for s in runtime.sandboxes[1:] if not s.ready and s.id not in holding)


def deadline_at(pod: core_v1.Pod) -> float | None:
    """Return when the pod's activeDeadlineSeconds have passed."""
    if pod.spec.active_deadline_seconds is None or not pod.status.start_time:
        return None
    return parse_time(pod.status.start_time).timestamp() + pod.spec.active_deadline_seconds


def container_hash(container: core_v1.Container | core_v1.EphemeralContainer) -> str:
    """Return what identifies a container's definition: a change of name or image means a restart."""
    text = msgspec.json.encode({"image": container.image or "", "name": container.name})
    return hashlib.sha256(text).hexdigest()[:8]


def find_container(pod: core_v1.Pod, name: str) -> tuple[core_v1.Container | core_v1.EphemeralContainer, Kind] | None:
    """Look a container up by name in all the pod's lists."""
    for container in pod.spec.containers:
        if container.name == name:
            return container, Kind.MAIN
    for container in pod.spec.init_containers:
        if container.name == name:
            return container, Kind.INIT
    for debug in pod.spec.ephemeral_containers:
        if debug.name == name:
            return debug, Kind.EPHEMERAL
    return None


def termination_waves(pod: core_v1.Pod, runtime: PodRuntime) -> list[list[ContainerRecord]]:
    """Order the running containers for the pod's end: all others first, then the sidecars, last started first.

    A container that the spec no longer names goes with the first wave.
    """
    order = {c.name: index for index, c in enumerate(pod.spec.init_containers) if is_sidecar(c)}
    alive = runtime.alive
    waves = [[record for record in alive if record.name not in order]]
    for name in sorted(order, key=lambda n: order[n], reverse=True):
        waves.append([record for record in alive if record.name == name])
    return [wave for wave in waves if wave]


def grace_of(pod: core_v1.Pod, override: int | None = None) -> int:
    """Return the seconds that a container has to end by itself: at least 1, unless the override says 0."""
    if override is not None:
        return max(override, 0)
    deletion = pod.metadata.deletion_grace_period_seconds
    if deletion is not None:
        return max(deletion, 1)
    own = pod.spec.termination_grace_period_seconds
    return max(own, 1) if own is not None else 30
