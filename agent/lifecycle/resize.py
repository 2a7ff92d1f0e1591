"""In-place resize: compares the CPU and memory of the spec with what running containers and their pod have.

A container's difference is actuated in the running container (steps/resize.py), or by a restart if its resizePolicy wants one;
the pod's own (spec.resources) in the pod's cgroup, and in the containers that inherit its limits. A resize is pending as
Deferred if the node has no room now, as Infeasible if it never has, and until then the pod keeps its allocated size. Pure.

Upstream: KEP-1287, KEP-5419; computePodResizeAction, GetLimits (pkg/kubelet/util).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent.runtime_records import PodRuntime
from kube.api import core_v1
from kube.quantity import Quantity, milli, value

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
NOTHING = core_v1.ResourceRequirements()


class ResizeError(Exception):
    """A resize cannot be actuated now; it is retried."""


class PendingResize(msgspec.Struct, frozen=True):
    """Reason and message of a pending resize; `reason` is Deferred or Infeasible."""

    reason: str
    message: str
    cause: str = ""
    """The resource that is short, where one is: OutOfcpu."""


@dataclass(frozen=True, slots=True)
class Actuated:
    """The sizes that the runtime and the pod's cgroup have."""

    containers: Mapping[str, core_v1.ResourceRequirements]
    """By container ID, with inherited limits: the running containers whose size is known."""
    together: core_v1.ResourceRequirements | None = None
    """The pod's own resources; None if it has none, or they are not known."""


def inherited(
    own: core_v1.ResourceRequirements | None, together: core_v1.ResourceRequirements | None
) -> core_v1.ResourceRequirements:
    """Return a container's resources, with the pod's limits of CPU and memory if it has none of its own."""
    own = own or NOTHING
    missing = {
        name: limit
        for name, limit in (together.limits if together is not None else {}).items()
        if name in ("cpu", "memory") and not _amount(name, own.limits)
    }
    return core_v1.ResourceRequirements(limits={**own.limits, **missing}, requests=own.requests) if missing else own


def changed(wanted: core_v1.ResourceRequirements, actuated: core_v1.ResourceRequirements) -> set[str]:
    """Return which of cpu and memory differ between two sizes."""
    return {
        name
        for name in ("cpu", "memory")
        for new, old in ((wanted.limits, actuated.limits), (wanted.requests, actuated.requests))
        if _amount(name, new) != _amount(name, old)
    }


def differs(pod: core_v1.Pod, runtime: PodRuntime, actuated: Actuated) -> bool:
    """Return whether the spec asks for another size than the pod's cgroup or a running container has."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = runtime.latest(container.name)
        if record is not None and record.running and (given := actuated.containers.get(record.id)) is not None:
            if changed(inherited(container.resources, pod.spec.resources), given):
                return True
    return pod_differs(pod, runtime, actuated.together)


def pod_differs(pod: core_v1.Pod, runtime: PodRuntime, together: core_v1.ResourceRequirements | None) -> bool:
    """Return whether the pod's own resources differ from the actuated ones; False if it has no sandbox."""
    wanted = pod.spec.resources
    ready = runtime.sandbox is not None and runtime.sandbox.ready
    return ready and wanted is not None and bool(changed(wanted, together or NOTHING))


def needs_restart(container: core_v1.Container, resources: set[str]) -> bool:
    """Return whether the container's resizePolicy wants a restart for a change of one of these."""
    return any(p.resource_name in resources and p.restart_policy == "RestartContainer" for p in container.resize_policy)


def shrinks_memory(wanted: core_v1.ResourceRequirements, actuated: core_v1.ResourceRequirements | None) -> bool:
    """Return whether a container's memory limit goes down, or is its first."""
    limit, before = memory_limit(wanted), memory_limit(actuated or NOTHING)
    return bool(limit) and actuated is not None and (not before or limit < before)


def memory_limit(size: core_v1.ResourceRequirements) -> int:
    """Return the memory limit in bytes; 0 is no limit."""
    return _amount("memory", size.limits)


def check_use(limits: Mapping[str, tuple[int, int]]) -> None:
    """Raise ResizeError if a new memory limit is not above the memory in use: the kernel would kill for it.

    `limits`: limit and use in bytes, by what they are of: "pod", 'container "main"'.
    """
    errors = [
        f"attempting to set {what} memory limit ({limit}) below current usage ({used})"
        for what, (limit, used) in limits.items()
        if used >= limit
    ]
    if errors:
        text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        raise ResizeError(f"cannot decrease memory limits: {text}")


def _amount(name: str, amounts: Mapping[str, Quantity]) -> int:
    return (milli if name == "cpu" else value)(amounts.get(name, 0))
