"""A container's status: waiting, running or terminated, and its last state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from agent.interfaces import ProbeOutcome
from agent.lifecycle import Kind, is_sidecar, restarts
from agent.lifecycle.resize import PendingResize
from agent.runtime_records import ContainerRecord, PodRuntime, State
from cri.texts import shortened
from kube.api import core_v1
from kube.clock import format_time

AnyContainer = core_v1.Container | core_v1.EphemeralContainer


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reason and message of a container's state `waiting`: of a long one its beginning."""

    reason: str
    message: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(self.message))


class StatusInputs(msgspec.Struct, frozen=True):
    """Inputs of a pod's status beside its spec and the runtime's records."""

    outcomes: Mapping[str, ProbeOutcome] = msgspec.field(default_factory=dict)
    waiting: Mapping[str, Waiting] = msgspec.field(default_factory=dict)
    """By container name: the failure or back-off that keeps it from starting."""
    ended: bool = False
    """Nothing of the pod will be started any more."""
    actuated: Mapping[str, core_v1.ResourceRequirements] = msgspec.field(default_factory=dict)
    """By container ID: the actuated resources of running containers, with limits that are inherited from the pod."""
    allocated: core_v1.Pod | None = None
    """The pod in the size that the node has allocated, if that is not the spec's."""
    allocated_containers: Mapping[str, core_v1.ResourceRequirements] = msgspec.field(default_factory=dict)
    """By container name: the same of its containers."""
    actual: core_v1.Pod | None = None
    """The pod in its actuated size, if that is not the allocated one: a resize is in progress."""
    pending_resize: PendingResize | None = None
    """The reason for which the pod's resize is pending."""
    resize_error: str = ""
    runtime_name: str = "containerd"


def container_status(
    pod: core_v1.Pod,
    container: AnyContainer,
    kind: Kind,
    runtime: PodRuntime,
    known: StatusInputs,
    old: core_v1.ContainerStatus | None,
) -> core_v1.ContainerStatus:
    """Return the status of one container; `old` is the one that was last reported."""
    record, previous = runtime.latest(container.name), runtime.previous(container.name)
    state, last = _states(pod, container, kind, record, previous, known, old)
    status = core_v1.ContainerStatus(
        name=container.name,
        image=(record.image if record else "") or container.image or "",
        image_id=record.image_ref if record else "",
        container_id=f"{known.runtime_name}://{record.id}" if record else None,
        restart_count=record.restart_count if record else 0,
        state=state,
        last_state=last,
        started=False,
        volume_mounts=[_volume_mount(mount, record) for mount in container.volume_mounts],
    )
    if record is not None:
        status.stop_signal = record.stop_signal or None
        if record.user is not None:
            uid, gid, groups = record.user
            linux = core_v1.LinuxContainerUser(uid=uid, gid=gid, supplemental_groups=list(groups))
            status.user = core_v1.ContainerUser(linux=linux)
    if record is None:
        _carry_over(kind, status, known, old)
    if isinstance(container, core_v1.Container):
        own = container.resources or core_v1.ResourceRequirements()
        _set_resources(status, known.allocated_containers.get(container.name, own), record, known)
    outcome = known.outcomes.get(record.id) if record else None
    if record is not None and record.running and state.running is not None:
        status.started = outcome.started if outcome is not None else container.startup_probe is None
        counted = kind is Kind.MAIN or (isinstance(container, core_v1.Container) and is_sidecar(container))
        ready = outcome.ready if outcome is not None else container.readiness_probe is None
        status.ready = counted and bool(status.started) and ready
    elif kind is Kind.INIT and isinstance(container, core_v1.Container) and not is_sidecar(container):
        status.ready = state.terminated is not None and state.terminated.exit_code == 0
    return status


def _set_resources(
    status: core_v1.ContainerStatus,
    allocated: core_v1.ResourceRequirements,
    record: ContainerRecord | None,
    known: StatusInputs,
) -> None:
    """Set the allocated resources, and the actual ones: a container without limits shows none that it inherits."""
    actual = known.actuated.get(record.id, allocated) if record is not None and record.running else allocated
    status.allocated_resources = dict(allocated.requests)
    status.resources = core_v1.ResourceRequirements(
        limits=actual.limits if allocated.limits else {}, requests=actual.requests if allocated.requests else {}
    )


def _states(
    pod: core_v1.Pod,
    container: AnyContainer,
    kind: Kind,
    record: ContainerRecord | None,
    previous: ContainerRecord | None,
    known: StatusInputs,
    old: core_v1.ContainerStatus | None,
) -> tuple[core_v1.ContainerState, core_v1.ContainerState]:
    last = core_v1.ContainerState(terminated=terminated(previous, known.runtime_name) if previous else None)
    if previous is None and record is not None:
        last = _reported_last(old, record)  # what was before it may be gone from the runtime
    waiting = known.waiting.get(container.name)
    if record is None or record.state is State.CREATED:
        first = "PodInitializing" if pod.spec.init_containers and kind is not Kind.EPHEMERAL else "ContainerCreating"
        return _waiting(waiting or Waiting(first)), last
    if record.running:
        return core_v1.ContainerState(running=core_v1.ContainerStateRunning(started_at=stamp(record.started_at))), last
    gone = core_v1.ContainerState(terminated=terminated(record, known.runtime_name))
    will_restart = (
        not known.ended
        and kind is not Kind.EPHEMERAL
        and isinstance(container, core_v1.Container)
        and restarts(pod, container, record)
    )
    if waiting is not None and will_restart:
        return _waiting(waiting), gone
    return gone, last


def terminated(record: ContainerRecord, runtime_name: str = "containerd") -> core_v1.ContainerStateTerminated:
    """Return the terminated state of an instance; a runtime that gives no reason leaves it to the exit code."""
    return core_v1.ContainerStateTerminated(
        exit_code=record.exit_code,
        reason=record.reason or ("Completed" if record.exit_code == 0 else "Error"),
        message=record.message or None,
        started_at=stamp(record.started_at),
        finished_at=stamp(record.finished_at),
        container_id=f"{runtime_name}://{record.id}",
    )


def lost() -> core_v1.ContainerStateTerminated:
    """Return the state of a container of an ended pod whose exit was not observed, or that was never started."""
    return core_v1.ContainerStateTerminated(
        exit_code=137,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
    )


def _reported_last(old: core_v1.ContainerStatus | None, record: ContainerRecord) -> core_v1.ContainerState:
    """Return the newest exit of a container that was reported, other than that of an instance."""
    if old is None:
        return core_v1.ContainerState()
    of_another = not (old.container_id or "").endswith(record.id)
    for state in (old.state if of_another else None, old.last_state):
        if state is not None and state.terminated is not None:
            return core_v1.ContainerState(terminated=state.terminated)
    return core_v1.ContainerState()


def _carry_over(
    kind: Kind, status: core_v1.ContainerStatus, known: StatusInputs, old: core_v1.ContainerStatus | None
) -> None:
    """Carry the reported status over of a container that the runtime does not have (any more).

    One that was last reported as running has exited unobserved; an exit is never invented for one that did not run.
    """
    if old is None:
        return
    status.restart_count = old.restart_count
    state = old.state or core_v1.ContainerState()
    before = old.last_state.terminated if old.last_state is not None and state.running is None else None
    ended = state.terminated or before or (lost() if state.running is not None else None)
    if ended is None:
        return  # made perhaps, but never started: nothing of it has ended
    initialised = kind is Kind.INIT and state.terminated is not None and state.terminated.exit_code == 0
    if known.ended or initialised:
        status.state, status.last_state = core_v1.ContainerState(terminated=ended), old.last_state
        status.container_id, status.image_id = old.container_id, old.image_id
    else:
        status.last_state = core_v1.ContainerState(terminated=ended)


def _waiting(waiting: Waiting) -> core_v1.ContainerState:
    return core_v1.ContainerState(
        waiting=core_v1.ContainerStateWaiting(reason=waiting.reason, message=waiting.message or None)
    )


def _volume_mount(mount: core_v1.VolumeMount, record: ContainerRecord | None) -> core_v1.VolumeMountStatus:
    shown = core_v1.VolumeMountStatus(name=mount.name, mount_path=mount.mount_path)
    if mount.read_only:
        shown.read_only = True
        deep = mount.recursive_read_only == "Enabled"
        if mount.recursive_read_only == "IfPossible" and record is not None:
            deep = f"/{mount.mount_path.lstrip('/')}" in record.deep_read_only
        shown.recursive_read_only = "Enabled" if deep else "Disabled"
    return shown


def stamp(seconds: float) -> str | None:
    """Write epoch seconds as an API time; never is None."""
    return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else None
