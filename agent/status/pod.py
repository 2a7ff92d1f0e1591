"""A pod's status as the API shows it: phase, conditions with exact transition times, addresses, containers. Pure.

The rules and words are upstream's (pkg/kubelet/kubelet_pods.go, pkg/kubelet/status/generate.go). A condition keeps the time
at which it last changed, so the old status goes in; a phase that has ended never comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.cgroups import qos
from agent.lifecycle import End, Kind, is_sidecar, main_begun, may_restart_all, restarts_after, restarts_all
from agent.pods import resize
from agent.records import PodRuntime
from agent.status.container import Known, container_status, lost, stamp
from kube.api import core_v1

ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What of the node shows in a pod's status."""

    host_ips: tuple[str, ...] = ()


def pod_status(
    pod: core_v1.Pod,
    runtime: PodRuntime,
    known: Known,
    node: NodeFacts,
    now: float,
    *,
    end: End | None = None,
    finished: bool = False,
) -> core_v1.PodStatus:
    """Return the whole status. `pod.status` is what the API was last told.

    `end`: the pod came to an end on this node, with its reason. `finished`: nothing of it runs any more.
    """
    old = pod.status
    status = core_v1.PodStatus(
        qos_class=qos.qos_class(pod),
        start_time=old.start_time or stamp(now),
        host_ip=node.host_ips[0] if node.host_ips else None,
        host_ips=[core_v1.HostIP(ip=ip) for ip in node.host_ips],
        observed_generation=pod.metadata.generation,
        nominated_node_name=old.nominated_node_name,
        resource_claim_statuses=old.resource_claim_statuses,
        extended_resource_claim_status=old.extended_resource_claim_status,
        reason=old.reason,
        message=old.message,
    )
    spec = pod.spec
    status.init_container_statuses = [container_status(pod, c, Kind.INIT, runtime, known) for c in spec.init_containers]
    status.container_statuses = [container_status(pod, c, Kind.MAIN, runtime, known) for c in spec.containers]
    status.ephemeral_container_statuses = [
        container_status(pod, c, Kind.EPHEMERAL, runtime, known) for c in spec.ephemeral_containers
    ]
    ips = _addresses(pod, runtime, node)
    status.pod_ip = ips[0] if ips else None
    status.pod_ips = [core_v1.PodIP(ip=ip) for ip in ips]
    status.phase = phase(pod, status, runtime, finished)
    if old.phase == "Running" and not finished and may_restart_all(pod):
        if status.phase == "Pending" or _begin_again(pod, runtime):
            status.phase = "Running"  # containers that were taken away to start together
    # What still runs may hold what its successor wants: the end is told when the last container has stopped.
    ended = end is not None and not runtime.alive
    if end is not None and end.phase and ended:
        status.phase, status.reason, status.message = end.phase, end.reason or None, end.message or None
    if old.phase in ENDED_PHASES:
        status.phase, status.reason, status.message = old.phase, old.reason, old.message
    if finished and (main_begun(pod, runtime) or not any(_initialisation(pod, status))):
        # Once a pod was initialised, what never ran counts as failed when the pod has ended.
        for shown in status.container_statuses:
            if shown.state is None or shown.state.terminated is None:
                shown.state = core_v1.ContainerState(terminated=lost())
    status.conditions = _conditions(pod, runtime, status, known, now)
    if end is not None and end.disruption and ended:
        _disrupted(pod, status, end.disruption, now)
    return status


def rejected_status(pod: core_v1.Pod, end: End, now: float) -> core_v1.PodStatus:
    """Return the status of a pod that this node did not take: nothing of it was made, so no container is told of."""
    return core_v1.PodStatus(
        phase=end.phase,
        reason=end.reason,
        message=end.message,
        qos_class=qos.qos_class(pod),
        start_time=pod.status.start_time or stamp(now),
        observed_generation=pod.metadata.generation,
        conditions=pod.status.conditions,
    )


def _disrupted(pod: core_v1.Pod, status: core_v1.PodStatus, message: str, now: float) -> None:
    """Say that the pod was ended for the node's sake, which a Job does not count as its failure (KEP-3329)."""
    if any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions):
        return
    status.conditions.append(
        core_v1.PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="TerminationByKubelet",
            message=message,
            last_transition_time=stamp(now),
            observed_generation=pod.metadata.generation,
        )
    )


def _addresses(pod: core_v1.Pod, runtime: PodRuntime, node: NodeFacts) -> Sequence[str]:
    sandbox = runtime.sandbox
    if pod.spec.host_network:
        return node.host_ips if sandbox is not None else ()
    if sandbox is not None and sandbox.ips:
        return sandbox.ips
    if sandbox is not None and sandbox.ready:
        return ()
    # The sandbox is gone, or nothing is known yet: the address stays until a new one takes its place.
    return [ip.ip for ip in pod.status.pod_ips]


def _begin_again(pod: core_v1.Pod, runtime: PodRuntime) -> bool:
    return restarts_all(pod, runtime) is not None or any(runtime.latest(c.name) is None for c in pod.spec.containers)


# -- the phase --------------------------------------------------------------------------------------------------------
def phase(pod: core_v1.Pod, status: core_v1.PodStatus, runtime: PodRuntime, finished: bool) -> str:
    """Sum the containers up: Pending, Running, Succeeded or Failed."""
    pending_init, failed_init = _initialisation(pod, status)
    if failed_init:
        return "Failed"
    if pending_init and not main_begun(pod, runtime) and not finished:
        return "Pending"
    waiting = running = stopped = succeeded = restarting = 0
    for container, shown in zip(pod.spec.containers, status.container_statuses, strict=True):
        state, last = shown.state or core_v1.ContainerState(), shown.last_state or core_v1.ContainerState()
        if state.running is not None:
            running += 1
        elif (ended := state.terminated or last.terminated) is not None:
            stopped += 1
            succeeded += state.terminated is not None and ended.exit_code == 0
            restarting += restarts_after(pod, container, ended.exit_code)
        else:
            waiting += 1
    if waiting and not (finished and not running):
        return "Pending"
    if running:
        return "Running"
    if finished:
        # What was never started counts as not succeeded.
        return "Succeeded" if stopped and stopped == succeeded and not waiting else "Failed"
    if restarting:
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"


def _initialisation(pod: core_v1.Pod, status: core_v1.PodStatus) -> tuple[bool, bool]:
    """Tell whether init containers are still to come, and whether one failed for good."""
    pending = False
    for container, shown in zip(pod.spec.init_containers, status.init_container_statuses, strict=True):
        state, last = shown.state or core_v1.ContainerState(), shown.last_state or core_v1.ContainerState()
        if is_sidecar(container):
            pending |= not shown.started and last.terminated is None
            continue
        ended = state.terminated or (last.terminated if state.waiting is not None else None)
        if ended is None:
            pending = True
        elif ended.exit_code != 0:
            if not restarts_after(pod, container, ended.exit_code):
                return pending, True
            pending = True
    return pending, False


# -- conditions -------------------------------------------------------------------------------------------------------
def _conditions(
    pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus, known: Known, now: float
) -> list[core_v1.PodCondition]:
    ready = _containers_ready(pod, status)
    wanted = [
        _sandbox_ready(pod, runtime),
        _initialised(pod, runtime, status),
        _ready(pod, ready),
        ready,
        core_v1.PodCondition(type="PodScheduled", status="True"),
    ]
    wanted += _restarting(pod, runtime, status)
    wanted += _resizing(pod, runtime, known)
    old = {condition.type: condition for condition in pod.status.conditions}
    ours = {condition.type for condition in wanted} | {resize.PENDING, resize.IN_PROGRESS}
    for condition in wanted:
        before = old.get(condition.type)
        condition.observed_generation = pod.metadata.generation
        unchanged = before is not None and before.status == condition.status and before.last_transition_time
        condition.last_transition_time = before.last_transition_time if before and unchanged else stamp(now)
    return [*wanted, *(condition for condition in pod.status.conditions if condition.type not in ours)]


def _restarting(pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus) -> list[core_v1.PodCondition]:
    """Say of a pod whose containers may restart together whether they are being ended for that (KEP-5532)."""
    if not may_restart_all(pod):
        return []
    condition = core_v1.PodCondition(type="AllContainersRestarting", status="False")
    if status.phase in ENDED_PHASES:
        condition.reason = "PodCompleted" if status.phase == "Succeeded" else "PodFailed"
    elif restarts_all(pod, runtime) is not None:
        condition.status, condition.reason = "True", "RestartAllContainersStarted"
        condition.message = "container exited with restart policy rule"
    return [condition]


def _resizing(pod: core_v1.Pod, runtime: PodRuntime, known: Known) -> list[core_v1.PodCondition]:
    """Tell of a resize that waits, or that is under way; nothing once every container has its size."""
    if known.held is not None:
        held = known.held
        return [core_v1.PodCondition(type=resize.PENDING, status="True", reason=held.reason, message=held.message)]
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name)
        applied = known.applied.get(record.id) if record is not None and record.running else None
        if applied is not None and resize.changed(container, applied):
            error = known.resize_error
            return [
                core_v1.PodCondition(
                    type=resize.IN_PROGRESS, status="True", reason="Error" if error else None, message=error or None
                )
            ]
    return []


def _sandbox_ready(pod: core_v1.Pod, runtime: PodRuntime) -> core_v1.PodCondition:
    sandbox = runtime.sandbox
    ready = sandbox is not None and sandbox.ready and (bool(sandbox.ips) or bool(pod.spec.host_network))
    return core_v1.PodCondition(type="PodReadyToStartContainers", status="True" if ready else "False")


def _initialised(pod: core_v1.Pod, runtime: PodRuntime, status: core_v1.PodStatus) -> core_v1.PodCondition:
    condition = core_v1.PodCondition(type="Initialized", status="True")
    if status.phase == "Succeeded":
        condition.reason = "PodCompleted"
        return condition
    if main_begun(pod, runtime):
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
