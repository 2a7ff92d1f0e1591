"""The rules of a pod's life that the state machine, the status and the pod's end share. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from agent.lifecycle.actions import Kind
from agent.records import ContainerRecord, PodRuntime, State
from kube.api import core_v1
from kube.clock import parse_time


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
    if rule_for(container, record) is not None:
        return True
    policy = policy_of(pod, container)
    return policy == "Always" or (policy == "OnFailure" and record.exit_code != 0)


def rule_for(container: core_v1.Container, record: ContainerRecord) -> core_v1.ContainerRestartRule | None:
    """Return the first of the container's own rules that is for such an end (KEP-5307)."""
    for rule in container.restart_policy_rules if record.state is State.EXITED else ():
        codes = rule.exit_codes
        if codes is not None and (record.exit_code in codes.values) == (codes.operator == "In"):
            return rule
    return None


def may_restart_all(pod: core_v1.Pod) -> bool:
    """Tell whether the end of one of the pod's containers can mean a restart of all."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return any(rule.action == "RestartAllContainers" for container in every for rule in container.restart_policy_rules)


def restarts_all(pod: core_v1.Pod, runtime: PodRuntime) -> ContainerRecord | None:
    """Return the container whose end asks for a restart of all (KEP-5532); it is there until all others are gone."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name) if container.restart_policy_rules else None
        if record is not None and (rule := rule_for(container, record)) is not None:
            if rule.action == "RestartAllContainers":
                return record
    return None


def told_restarts(pod: core_v1.Pod, name: str) -> int | None:
    """Return the restart count that the API shows of a container that has run; None where none has."""
    status = pod.status
    for shown in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        ran = shown.state is not None and (shown.state.running or shown.state.terminated)
        before = shown.last_state is not None and shown.last_state.terminated
        if shown.name == name and (shown.container_id or ran or before):
            return shown.restart_count
    return None


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
