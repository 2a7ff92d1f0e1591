"""Allocated and actuated sizes of a pod: its containers' resources, and its own.

The allocated size is the spec's, except while a resize is pending. A pending resize (Deferred, Infeasible) must not take effect
indirectly: a container that restarts meanwhile is created with its allocated size, and others on the node are admitted in
addition to that size (upstream: pkg/kubelet/allocation). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from agent.lifecycle.resize import NOTHING, Actuated, changed
from agent.runtime_records import PodRuntime
from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a pod, as in its checkpoints."""

    containers: Mapping[str, core_v1.ResourceRequirements]
    """By container name: every container that can be resized."""
    together: core_v1.ResourceRequirements | None = None
    """The pod's own resources."""


def size_of(pod: core_v1.Pod) -> Size:
    """Return the size that a spec has."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return Size({container.name: container.resources or NOTHING for container in every}, pod.spec.resources)


def differs(pod: core_v1.Pod, allocated: core_v1.Pod) -> bool:
    """Return whether the spec has another size than the allocated one, whether or not a container runs."""
    wanted, before = size_of(pod), size_of(allocated)
    if changed(wanted.together or NOTHING, before.together or NOTHING):
        return True
    return any(
        changed(size, before.containers[name]) for name, size in wanted.containers.items() if name in before.containers
    )


def as_allocated(pod: core_v1.Pod, checkpointed: Size | None) -> core_v1.Pod:
    """Return the pod in its checkpointed size; the pod itself if that is the spec's, or there is none."""
    if checkpointed is None:
        return pod
    found = with_size(pod, checkpointed)
    return found if differs(pod, found) else pod


def as_actuated(allocated: core_v1.Pod, runtime: PodRuntime, actuated: Actuated) -> core_v1.Pod:
    """Return the pod in the size that its running containers and its cgroup have."""
    records = {name: runtime.latest(name) for name in size_of(allocated).containers}
    given = {name: actuated.containers.get(record.id) for name, record in records.items() if record is not None}
    sizes = {name: size for name, size in given.items() if size is not None}
    return with_size(allocated, Size(sizes, actuated.together))


def with_size(pod: core_v1.Pod, size: Size) -> core_v1.Pod:
    """Return the pod in another size; containers that it does not name keep theirs."""
    has = size.containers

    def kept(container: core_v1.Container) -> core_v1.Container:
        return replace(container, resources=has[container.name]) if container.name in has else container

    spec = replace(
        pod.spec,
        resources=size.together,
        containers=[kept(container) for container in pod.spec.containers],
        init_containers=[kept(container) for container in pod.spec.init_containers],
    )
    return replace(pod, spec=spec)
