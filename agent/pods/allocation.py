"""What the node has granted a pod: the size of its spec, but for a resize that is held.

A held resize (Deferred, Infeasible) must not come true by the back door: a container that restarts meanwhile is made anew in
the size that it had, and others on the node are admitted beside that size (upstream: pkg/kubelet/allocation).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from agent.pods.resize import changed
from agent.records import PodRuntime
from kube.api import core_v1

Sizes = dict[str, core_v1.ResourceRequirements]
"""By container name."""


def sizes(pod: core_v1.Pod) -> Sizes:
    """Return the resources of every container that can be resized."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return {container.name: container.resources or core_v1.ResourceRequirements() for container in every}


def granted(
    allocated: core_v1.Pod, runtime: PodRuntime, applied: Mapping[str, core_v1.ResourceRequirements] | None
) -> Sizes:
    """Return what each container has: what it was last given, as the last agent noted it too, else what was granted."""
    records = {name: runtime.latest(name) for name in sizes(allocated)}
    given = {name: (applied or {}).get(record.id) for name, record in records.items() if record is not None}
    return sizes(allocated) | {name: size for name, size in given.items() if size is not None}


def differs(pod: core_v1.Pod, allocated: core_v1.Pod) -> bool:
    """Tell whether the spec asks for another size than was granted, whether or not a container runs."""
    before = sizes(allocated)
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return any(changed(container, before[container.name]) for container in every if container.name in before)


def as_granted(pod: core_v1.Pod, noted: Mapping[str, core_v1.ResourceRequirements]) -> core_v1.Pod:
    """Return the pod in the size that the last agent noted; the pod itself where that is the spec's, or none was noted."""
    if not noted:
        return pod
    found = in_size(pod, dict(noted))
    return found if differs(pod, found) else pod


def in_size(pod: core_v1.Pod, has: Sizes) -> core_v1.Pod:
    """Return the pod with its containers in the sizes that they have."""

    def kept(container: core_v1.Container) -> core_v1.Container:
        return replace(container, resources=has[container.name]) if container.name in has else container

    spec = replace(
        pod.spec,
        containers=[kept(container) for container in pod.spec.containers],
        init_containers=[kept(container) for container in pod.spec.init_containers],
    )
    return replace(pod, spec=spec)
