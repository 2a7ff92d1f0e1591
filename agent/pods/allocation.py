"""Allocated sizes of a pod's containers: those of its spec, except while a resize is pending.

A pending resize (Deferred, Infeasible) must not take effect indirectly: a container that restarts meanwhile is created with its
current size, and others on the node are admitted beside that size (upstream: pkg/kubelet/allocation). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from agent.lifecycle.resize import changed
from agent.records import PodRuntime
from kube.api import core_v1

Sizes = dict[str, core_v1.ResourceRequirements]
"""By container name."""


def sizes(pod: core_v1.Pod) -> Sizes:
    """Return the resources of every container that can be resized."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return {container.name: container.resources or core_v1.ResourceRequirements() for container in every}


def current_sizes(
    allocated: core_v1.Pod, runtime: PodRuntime, actuated: Mapping[str, core_v1.ResourceRequirements] | None
) -> Sizes:
    """Return each container's current size: the actuated one where it is known, else the allocated one."""
    records = {name: runtime.latest(name) for name in sizes(allocated)}
    given = {name: (actuated or {}).get(record.id) for name, record in records.items() if record is not None}
    return sizes(allocated) | {name: size for name, size in given.items() if size is not None}


def differs(pod: core_v1.Pod, allocated: core_v1.Pod) -> bool:
    """Return whether the spec has another size than the allocated one, whether or not a container runs."""
    before = sizes(allocated)
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return any(changed(container, before[container.name]) for container in every if container.name in before)


def as_allocated(pod: core_v1.Pod, checkpointed: Mapping[str, core_v1.ResourceRequirements]) -> core_v1.Pod:
    """Return the pod in its checkpointed size; the pod itself where that is the spec's, or there is none."""
    if not checkpointed:
        return pod
    found = with_sizes(pod, dict(checkpointed))
    return found if differs(pod, found) else pod


def with_sizes(pod: core_v1.Pod, has: Sizes) -> core_v1.Pod:
    """Return the pod with its containers in the sizes that they have."""

    def kept(container: core_v1.Container) -> core_v1.Container:
        return replace(container, resources=has[container.name]) if container.name in has else container

    spec = replace(
        pod.spec,
        containers=[kept(container) for container in pod.spec.containers],
        init_containers=[kept(container) for container in pod.spec.init_containers],
    )
    return replace(pod, spec=spec)
