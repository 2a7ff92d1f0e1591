"""Ranks pods for eviction, and forms the message of the eviction (kubelet/eviction/helpers.go). Pure.

First come pods that use more of the resource than they requested, then by priority, then by how much more. Inodes and process
IDs cannot be requested, so every user of them counts as using more. Critical pods are never in the list. When the
memory runs out before that, the kernel chooses a container (`agent/cgroups/qos.py: oom_score_adj`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.cgroups import qos
from agent.eviction.image_filesystem import ALL_PARTS
from agent.eviction.signals import RESOURCES, Reading
from agent.eviction.thresholds import Threshold
from agent.interfaces import PodView
from agent.lifecycle import End
from agent.usage.model import ContainerUse, PodUse
from kube.api import core_v1
from kube.quantity import render, value


@dataclass(frozen=True, slots=True)
class Usage:
    """A pod's usage of the resource that is short, by container where that is known, and its request."""

    view: PodView
    used: int
    requested: int
    containers: Mapping[str, int] = field(default_factory=dict)


def usage_of(view: PodView, use: PodUse | None, resource: str, parts: frozenset[str] = ALL_PARTS) -> Usage:
    """Return a pod's use of memory, ephemeral-storage, inodes or pids; of a disk only what is in these parts."""
    pod = view.pod
    if use is None:
        return Usage(view, 0, _requested(pod, resource))
    containers = {one.name: _of_container(one, resource) for one in use.containers}
    used = sum(containers.values())
    if resource == "pids":
        used = use.processes
    elif resource in ("ephemeral-storage", "inodes"):
        used = _of_disk(pod, use, space=resource == "ephemeral-storage", parts=parts)
    elif not use.containers:
        # While containers run, the kernel counts these files for the ones that wrote them.
        memory = {
            volume.name for volume in pod.spec.volumes if volume.empty_dir and volume.empty_dir.medium == "Memory"
        }
        used = sum(system.used for name, system in use.volumes if name in memory)
        if use.memory is not None:  # the pod's cgroup, if the runtime has not answered for its containers
            used = max(used, use.memory.working_set)
    return Usage(view, used, _requested(pod, resource), containers)


def _of_disk(pod: core_v1.Pod, use: PodUse, *, space: bool, parts: frozenset[str]) -> int:
    """Return a pod's bytes (`space`) or inodes on disk."""
    used = 0
    if "layers" in parts:
        used += sum(one.rootfs_used if space else one.rootfs_inodes for one in use.containers)
    if "logs" in parts:
        used += sum(one.logs_used if space else one.logs_inodes for one in use.containers)
    if "volumes" in parts:
        used += use.files[0] if space else use.files[1]
        disk = {volume.name for volume in pod.spec.volumes if on_disk(volume)}
        used += sum(system.used if space else system.inodes_used for name, system in use.volumes if name in disk)
    return used


def on_disk(volume: core_v1.Volume) -> bool:
    """Return whether a volume is the pod's own and on the node's disk."""
    if volume.empty_dir is not None:
        return not volume.empty_dir.medium
    return volume.config_map is not None or volume.downward_api is not None


def _of_container(use: ContainerUse, resource: str) -> int:
    if resource == "memory":
        return use.memory.working_set
    if resource == "ephemeral-storage":
        return use.rootfs_used + use.logs_used
    return use.rootfs_inodes + use.logs_inodes if resource == "inodes" else 0


def _requested(pod: core_v1.Pod, resource: str) -> int:
    return qos.pod_request(pod, resource) if resource in ("memory", "ephemeral-storage") else 0


def critical(view: PodView) -> bool:
    """Return whether a pod is never evicted: a static one, which does not come back, or one of system-critical priority."""
    return qos.is_critical(view.pod, static=view.static)


def rank(usages: Sequence[Usage]) -> list[Usage]:
    """Order pods, the first to be evicted first; evicted ones keep their place until their resources are released.

    Their author decides how long deleted pods go on, and whether a pod that has filled the disk has a running container.
    """
    candidates = [u for u in usages if not critical(u.view) and (u.view.alive or u.used)]
    return sorted(
        candidates,
        key=lambda u: (u.used <= u.requested, u.view.pod.spec.priority or 0, -(u.used - u.requested)),
    )


def eviction(one: Threshold, reading: Reading, usage: Usage) -> End:
    """Return the eviction of a pod, with upstream's message."""
    resource = RESOURCES[one.signal]
    limit, available = _show(one.limit(reading), resource), _show(reading.available, resource)
    message = f"The node was low on resource: {resource}. Threshold quantity: {limit}, available: {available}. "
    if resource in ("memory", "ephemeral-storage"):
        for container in usage.view.pod.spec.containers:
            used = usage.containers.get(container.name, 0)
            requests = container.resources.requests if container.resources else {}
            requested = value(requests.get(resource, 0))
            if used > requested:
                request = _show(requested, resource) if requested else "0"
                message += f"Container {container.name} was using {_show(used, resource)}, request is {request}, "
                message += f"has larger consumption of {resource}. "
    return End("Failed", "Evicted", message, disruption=message)


def chosen(one: Threshold, ranked: Sequence[Usage]) -> str:
    """Return for the journal why the first pod of a ranking is evicted."""
    first, resource = ranked[0], RESOURCES[one.signal]
    used = f"it uses {_show(first.used, resource)} and requests {_show(first.requested, resource)}"
    kind = "hard" if one.hard else "soft"
    return f"{kind} threshold {one.signal}<{one.amount}; it is ranked first: {used}"


def _show(amount: int, resource: str) -> str:
    if resource in ("memory", "ephemeral-storage"):
        return render(max(amount, 0) // 1024 * 1024, "binary")
    return str(max(amount, 0))
