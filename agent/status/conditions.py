"""A pod's conditions, with their transition times. Pure.

The rules and words are upstream's (pkg/kubelet/status/generate.go). A condition keeps the time of its last transition, so the
conditions that were last reported are an input; those that others write (readiness gates, a scheduler) stay as they are.
"""

from __future__ import annotations

from agent.lifecycle import initialized, is_sidecar, may_restart_all, resize, restarts_all
from agent.runtime_records import PodRuntime
from agent.status.container import StatusInputs, stamp
from agent.status.phase import ENDED_PHASES
from kube import disruption_target
from kube.api import core_v1


def conditions(
    pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus, known: StatusInputs, now: float
) -> list[core_v1.PodCondition]:
    """Return all conditions, also those that others wrote; `status` has the phase and the containers already."""
    ready = _containers_ready(pod, status)
    wanted = [
        _sandbox_ready(pod, runtime),
        _initialised(pod, runtime, status),
        _ready(pod, ready),
        ready,
        core_v1.PodCondition(type="PodScheduled", status="True"),
    ]
    wanted += _restarting(pod, runtime, status)
    wanted += _resizing(known)
    old = {condition.type: condition for condition in pod.status.conditions}
    ours = {condition.type for condition in wanted} | {resize.PENDING, resize.IN_PROGRESS}
    for condition in wanted:
        before = old.get(condition.type)
        condition.observed_generation = pod.metadata.generation
        unchanged = before is not None and before.status == condition.status and before.last_transition_time
        condition.last_transition_time = before.last_transition_time if before and unchanged else stamp(now)
    return [*wanted, *(condition for condition in pod.status.conditions if condition.type not in ours)]


def add_disruption(pod: core_v1.Pod, status: core_v1.PodStatus, message: str, now: float) -> None:
    """Add the DisruptionTarget condition, by which a Job does not count the pod as failed (KEP-3329)."""
    if any(c.type == disruption_target.TYPE and c.status == "True" for c in status.conditions):
        return
    status.conditions.append(
        core_v1.PodCondition(
            type=disruption_target.TYPE,
            status="True",
            reason="TerminationByKubelet",
            message=message,
            last_transition_time=stamp(now),
            observed_generation=pod.metadata.generation,
        )
    )


def _restarting(pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus) -> list[core_v1.PodCondition]:
    """Return the condition of a pod whose containers restart together, whether they are being stopped for that (KEP-5532)."""
    if not may_restart_all(pod):
        return []
    condition = core_v1.PodCondition(type="AllContainersRestarting", status="False")
    if status.phase in ENDED_PHASES:
        condition.reason = "PodCompleted" if status.phase == "Succeeded" else "PodFailed"
    elif restarts_all(pod, runtime) is not None:
        condition.status, condition.reason = "True", "RestartAllContainersStarted"
        condition.message = "container exited with restart policy rule"
    return [condition]


def _resizing(known: StatusInputs) -> list[core_v1.PodCondition]:
    """Return the conditions of a pending and a running resize; none once the pod has its size."""
    found = []
    if (pending := known.pending_resize) is not None:
        found.append(
            core_v1.PodCondition(type=resize.PENDING, status="True", reason=pending.reason, message=pending.message)
        )
    if known.actual is not None:
        error = known.resize_error
        condition = core_v1.PodCondition(type=resize.IN_PROGRESS, status="True", message=error or None)
        condition.reason = "Error" if error else None
        found.append(condition)
    return found


def _sandbox_ready(pod: core_v1.Pod, runtime: PodRuntime) -> core_v1.PodCondition:
    sandbox = runtime.sandbox
    ready = sandbox is not None and sandbox.ready and (bool(sandbox.ips) or bool(pod.spec.host_network))
    return core_v1.PodCondition(type="PodReadyToStartContainers", status="True" if ready else "False")


def _initialised(pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus) -> core_v1.PodCondition:
    condition = core_v1.PodCondition(type="Initialized", status="True")
    if status.phase == "Succeeded":
        condition.reason = "PodCompleted"
        return condition
    if initialized(pod, runtime):
        return condition
    incomplete = []
    for container, shown in zip(pod.spec.init_containers, status.init_container_statuses, strict=True):
        done = bool(shown.started) if is_sidecar(container) else shown.ready
        if not done:
            incomplete.append(container.name)
    if incomplete:
        condition.status, condition.reason = "False", "ContainersNotInitialized"
        condition.message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return condition


def _containers_ready(pod: core_v1.Pod, status: core_v1.PodStatus) -> core_v1.PodCondition:
    condition = core_v1.PodCondition(type="ContainersReady", status="True")
    if status.phase in ENDED_PHASES:
        condition.status = "False"
        condition.reason = "PodCompleted" if status.phase == "Succeeded" else "PodFailed"
        return condition
    sidecars = {c.name for c in pod.spec.init_containers if is_sidecar(c)}
    counted = [s for s in status.init_container_statuses if s.name in sidecars] + status.container_statuses
    unready = [shown.name for shown in counted if not shown.ready]
    if unready:
        condition.status, condition.reason = "False", "ContainersNotReady"
        condition.message = f"containers with unready status: [{' '.join(unready)}]"
    return condition


def _ready(pod: core_v1.Pod, containers_ready: core_v1.PodCondition) -> core_v1.PodCondition:
    condition = core_v1.PodCondition(
        type="Ready",
        status=containers_ready.status,
        reason=containers_ready.reason,
        message=containers_ready.message,
    )
    if containers_ready.status != "True":
        return condition
    found = {c.type: c.status for c in pod.status.conditions}
    complaints = []
    for gate in pod.spec.readiness_gates:
        name = gate.condition_type
        if name not in found:
            complaints.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif found[name] != "True":
            complaints.append(f'the status of pod readiness gate "{name}" is not "True", but {found[name]}')
    if complaints:
        condition.status, condition.reason = "False", "ReadinessGatesNotReady"
        condition.message = ", ".join(complaints)
    return condition
