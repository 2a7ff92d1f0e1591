"""In-place resize: compares the CPU and memory of the spec with what running containers have (KEP-1287).

A difference is actuated in the running container (steps/resize.py), or by a restart where its resizePolicy wants one; a resize
is pending as Deferred where the node has no room now, as Infeasible where it never has, and until then the pod keeps its size.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.cgroups import qos
from agent.records import PodRuntime
from kube.api import core_v1
from kube.quantity import milli, value

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


class ResizeError(Exception):
    """A resize cannot be actuated now; it is retried."""


@dataclass(frozen=True, slots=True)
class PendingResize:
    """Why a resize is pending: `reason` is Deferred or Infeasible."""

    reason: str
    message: str
    cause: str = ""
    """The resource that is short, where one is: OutOfcpu."""


def changed(container: core_v1.Container, actuated: core_v1.ResourceRequirements) -> set[str]:
    """Return which of cpu and memory differ between the spec and what was applied."""
    wanted = container.resources or core_v1.ResourceRequirements()
    found = set()
    for name, amount in (("cpu", milli), ("memory", value)):
        for new, old in ((wanted.limits, actuated.limits), (wanted.requests, actuated.requests)):
            if amount(new.get(name, 0)) != amount(old.get(name, 0)):
                found.add(name)
    return found


def differs(pod: core_v1.Pod, runtime: PodRuntime, actuated: Mapping[str, core_v1.ResourceRequirements] | None) -> bool:
    """Return whether the spec asks for another size than a running container has; `applied` is by container ID."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name)
        if record is not None and record.running and (given := (actuated or {}).get(record.id)) is not None:
            if changed(container, given):
                return True
    return False


def needs_restart(container: core_v1.Container, resources: set[str]) -> bool:
    """Return whether the container's resizePolicy wants a restart for a change of one of these."""
    return any(p.resource_name in resources and p.restart_policy == "RestartContainer" for p in container.resize_policy)


def check_use(container: core_v1.Container, actuated: core_v1.ResourceRequirements | None, used: int) -> None:
    """Raise ResizeError where a running container's memory limit would go below what it uses, in bytes."""
    limit = value(qos.limits(container.resources).get("memory", 0))
    if shrinks_memory(container, actuated) and used >= limit:
        raise ResizeError(
            f'attempting to set container "{container.name}" memory limit ({limit}) below current usage ({used})'
        )


def shrinks_memory(container: core_v1.Container, actuated: core_v1.ResourceRequirements | None) -> bool:
    """Return whether a container's memory limit goes down."""
    limit = value(qos.limits(container.resources).get("memory", 0))
    return bool(limit) and actuated is not None and limit < value(actuated.limits.get("memory", 0))
