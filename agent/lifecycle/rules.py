"""Rules of a pod's lifecycle that the state machine, the status and the termination share. Pure."""

from __future__ import annotations

from agent.lifecycle import container_index
from agent.lifecycle.container_index import Named
from agent.runtime_records import ContainerRecord, PodRuntime, State
from kube.api import core_v1
from kube.clock import MOST_SECONDS, parse_time


def is_sidecar(container: core_v1.Container) -> bool:
    """Return whether an init container is restartable (KEP-753)."""
    return container.restart_policy == "Always"


def policy_of(pod: core_v1.Pod, container: core_v1.Container | core_v1.EphemeralContainer) -> str:
    """Return the restart policy that holds for a container: its own, or the pod's."""
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    if container.restart_policy is None and policy == "Always":
        if id(container) in container_index.of(pod).init:
            return "OnFailure"  # an init container that has succeeded stays done
    return policy


def restarts(pod: core_v1.Pod, container: core_v1.Container, record: ContainerRecord) -> bool:
    """Return whether a container that ended like this one is to be started again."""
    if not record.exited:
        return record.state is State.CREATED
    if record.state is State.EXITED:
        return restarts_after(pod, container, record.exit_code)
    return _policy_restarts(pod, container, record.exit_code)  # its exit is unknown, so no rule matches


def restarts_after(pod: core_v1.Pod, container: core_v1.Container, exit_code: int) -> bool:
    """Return whether a container with this exit code is to be restarted, by its rules and then by its policy."""
    return _rule(container, exit_code) is not None or _policy_restarts(pod, container, exit_code)


def _policy_restarts(pod: core_v1.Pod, container: core_v1.Container, exit_code: int) -> bool:
    policy = policy_of(pod, container)
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def rule_for(container: core_v1.Container, record: ContainerRecord) -> core_v1.ContainerRestartRule | None:
    """Return the first of the container's own rules that is for such an end (KEP-5307)."""
    return _rule(container, record.exit_code) if record.state is State.EXITED else None


def _rule(container: core_v1.Container, exit_code: int) -> core_v1.ContainerRestartRule | None:
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is not None and (exit_code in codes.values) == (codes.operator == "In"):
            return rule
    return None


def may_restart_all(pod: core_v1.Pod) -> bool:
    """Return whether the exit of one of the pod's containers can demand a restart of all."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return any(rule.action == "RestartAllContainers" for container in every for rule in container.restart_policy_rules)


def restarts_all(pod: core_v1.Pod, runtime: PodRuntime) -> ContainerRecord | None:
    """Return the container whose exit demands a restart of all (KEP-5532); it is removed last."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name) if container.restart_policy_rules else None
        if record is not None and (rule := rule_for(container, record)) is not None:
            if rule.action == "RestartAllContainers":
                return record
    return None


def removal_order(runtime: PodRuntime, trigger: ContainerRecord) -> list[ContainerRecord]:
    """Return the containers in the order in which a restart of all removes them, which the agent may be killed in.

    A container's older instances go first, so that its restart count never falls, and what caused the restart goes last.
    """
    return sorted(runtime.containers, key=lambda r: (r.id == trigger.id, r.restart_count, r.created_at))


def reported_restarts(pod: core_v1.Pod) -> dict[str, int]:
    """Return the restart counts that the API shows, by name, of the containers that have run."""
    status, found = pod.status, dict[str, int]()
    for shown in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        ran = shown.state is not None and (shown.state.running or shown.state.terminated)
        before = shown.last_state is not None and shown.last_state.terminated
        if shown.container_id or ran or before:
            found.setdefault(shown.name, shown.restart_count)
    return found


def initialized(pod: core_v1.Pod, runtime: PodRuntime) -> bool:
    """Return whether a main container was ever created in the current sandbox: then initialization is over."""
    sandbox = runtime.sandbox
    names = {container.name for container in pod.spec.containers}
    return sandbox is not None and any(
        record.name in names and record.sandbox_id == sandbox.id for record in runtime.containers
    )


def surplus_instances(runtime: PodRuntime) -> tuple[str, ...]:
    """Choose the instances beyond the newest and the last before it that ran (for `logs --previous`).

    One that was created and never started has no log: it must not replace one that ran and exited.
    """
    newest: set[str] = set()
    ended: set[str] = set()
    gone = []
    for record in runtime.containers:
        if record.name not in newest:
            newest.add(record.name)
        elif record.exited and record.name not in ended:
            ended.add(record.name)
        elif not record.running:
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
    return parse_time(pod.status.start_time).timestamp() + min(pod.spec.active_deadline_seconds, MOST_SECONDS)


def find_container(pod: core_v1.Pod, name: str) -> Named | None:
    """Look a container up by name in all the pod's lists."""
    return container_index.of(pod).named.get(name)


def termination_waves(pod: core_v1.Pod, runtime: PodRuntime) -> list[list[ContainerRecord]]:
    """Order the running containers for the pod's end: all others first, then the sidecars, last started first.

    A container that the spec no longer names goes with the first wave.
    """
    order = {c.name: index for index, c in enumerate(pod.spec.init_containers) if is_sidecar(c)}
    alive = runtime.alive
    first: list[ContainerRecord] = []
    sidecars: dict[str, list[ContainerRecord]] = {}
    for record in alive:
        (sidecars.setdefault(record.name, []) if record.name in order else first).append(record)
    waves = [first, *(sidecars[name] for name in sorted(sidecars, key=lambda n: order[n], reverse=True))]
    return [wave for wave in waves if wave]


def grace_of(pod: core_v1.Pod, override: int | None = None) -> int:
    """Return the grace period of a container in seconds: at least 1, unless the override is 0."""
    if override is not None:
        return max(override, 0)
    deletion = pod.metadata.deletion_grace_period_seconds
    if deletion is not None:
        return max(deletion, 1)
    own = pod.spec.termination_grace_period_seconds
    return max(own, 1) if own is not None else 30
