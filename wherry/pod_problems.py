"""Counts of reasons for which pods are not Ready, in the words in which `kubectl get pods` shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class NotReady:
    """The pods that are not Ready for one reason; `example` is one of them, as NAMESPACE/NAME."""

    reason: str
    count: int
    example: str


def not_ready(pods: Iterable[core_v1.Pod]) -> list[NotReady]:
    """Count pods that are neither Ready nor finished, by reason, the most frequent first."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if reason := reason_of(pod):
            found.setdefault(reason, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    counted = [NotReady(reason, len(names), min(names)) for reason, names in found.items()]
    return sorted(counted, key=lambda each: (-each.count, each.reason))


def reason_of(pod: core_v1.Pod) -> str:
    """Return why a pod is not Ready; "" if it is, or if it has succeeded."""
    status = pod.status
    conditions = {condition.type: condition for condition in status.conditions}
    ready = conditions.get("Ready")
    if status.phase == "Succeeded" or (ready is not None and ready.status == "True"):
        return ""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if status.reason:
        return status.reason
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable"
    for container in (*status.init_container_statuses, *status.container_statuses):
        state = container.state
        if state is not None and state.waiting is not None and state.waiting.reason:
            if state.waiting.reason not in ("PodInitializing", "ContainerCreating"):
                return state.waiting.reason
        elif state is not None and state.terminated is not None and state.terminated.exit_code:
            return state.terminated.reason or "Error"
    if status.phase == "Failed":
        return "Failed"
    if ready is not None and ready.reason and status.phase == "Running":
        return ready.reason
    return "ContainerCreating" if scheduled is not None else "Pending"
