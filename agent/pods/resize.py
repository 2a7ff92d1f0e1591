"""In-place resize: CPU and memory of running containers brought to what the spec now says (KEP-1287). Pure.

A difference is applied to the running container (actuation.py), or by a restart where its resizePolicy wants one; a resize
that the node cannot hold now is Deferred, one that it never can is Infeasible, and until then the pod keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.cgroups import qos
from agent.pods.taken import Taken
from agent.records import PodRuntime
from kube.api import core_v1
from kube.quantity import Quantity, milli, value

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class ResizeError(Exception):
    """A resize that was begun cannot be done now; it is tried again."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a resize is not carried out: `reason` is Deferred or Infeasible."""

    reason: str
    message: str
    cause: str = ""
    """What is short, where something is: OutOfcpu."""


def changed(container: core_v1.Container, applied: core_v1.ResourceRequirements) -> set[str]:
    """Return which of cpu and memory differ between the spec and what was applied."""
    wanted = container.resources or core_v1.ResourceRequirements()
    found = set()
    for name, amount in (("cpu", milli), ("memory", value)):
        for new, old in ((wanted.limits, applied.limits), (wanted.requests, applied.requests)):
            if amount(new.get(name, 0)) != amount(old.get(name, 0)):
                found.add(name)
    return found


def differs(pod: core_v1.Pod, runtime: PodRuntime, applied: Mapping[str, core_v1.ResourceRequirements] | None) -> bool:
    """Tell whether the spec asks for another size than a running container has; `applied` is by container ID."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name)
        if record is not None and record.running and (given := (applied or {}).get(record.id)) is not None:
            if changed(container, given):
                return True
    return False


def needs_restart(container: core_v1.Container, resources: set[str]) -> bool:
    """Tell whether the container asked to be restarted for a change of one of these."""
    return any(p.resource_name in resources and p.restart_policy == "RestartContainer" for p in container.resize_policy)


def hold(pod: core_v1.Pod, others: Iterable[Taken], allocatable: Mapping[str, Quantity]) -> Hold | None:
    """Return why the node cannot give the pod what it now asks for; None where it can."""
    others = list(others)
    for name, amount in (("cpu", milli), ("memory", value)):
        if name not in allocatable:
            continue
        requested, capacity = qos.pod_request(pod, name), amount(allocatable[name])
        if requested > capacity:
            message = f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            return Hold("Infeasible", message)
        used = sum(other.requests.get(name, 0) for other in others)
        if requested + used > capacity:
            message = (
                f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            )
            return Hold("Deferred", message, f"OutOf{name}")
    return None


def hold_swap(pod: core_v1.Pod, swaps: Callable[[core_v1.Container], bool]) -> Hold | None:
    """Return why a pod's size stays where one of its containers may swap: its share cannot be changed under way."""
    for container in pod.spec.containers:
        if swaps(container) and not needs_restart(container, {"memory"}):
            return Hold("Infeasible", "In-place resize of containers with swap is not supported")
    return None


def check_use(container: core_v1.Container, applied: core_v1.ResourceRequirements | None, used: int) -> None:
    """Raise ResizeError where a running container's memory limit would go below what it uses, in bytes."""
    limit = value(qos.limits(container.resources).get("memory", 0))
    if shrinks_memory(container, applied) and used >= limit:
        raise ResizeError(
            f'attempting to set container "{container.name}" memory limit ({limit}) below current usage ({used})'
        )


def shrinks_memory(container: core_v1.Container, applied: core_v1.ResourceRequirements | None) -> bool:
    """Tell whether a container's memory limit goes down."""
    limit = value(qos.limits(container.resources).get("memory", 0))
    return bool(limit) and applied is not None and limit < value(applied.limits.get("memory", 0))
