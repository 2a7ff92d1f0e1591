"""Decides whether the policies of CPU and memory manager allow a pod's containers to be resized."""

from __future__ import annotations

from agent.cgroups import qos
from agent.lifecycle.resize import PendingResize
from agent.managers.options import ManagerOptions
from kube.api import core_v1
from kube.quantity import milli


def refuse_resize(options: ManagerOptions, pod: core_v1.Pod, allocated: core_v1.Pod) -> PendingResize | None:
    """Return why a pod's containers cannot be resized under these policies (kubelet: podResizesAdmitHandler)."""
    if qos.qos_class(pod) != qos.GUARANTEED:
        return None
    for policy, static, resource, name in (
        (options.cpu_policy, "static", "cpu", "CPU"),
        (options.memory_policy, "Static", "memory", "Memory"),
    ):
        if policy == static and _requests(pod, resource) != _requests(allocated, resource):
            text = f'Resize is infeasible for Guaranteed Pods alongside {name} Manager policy "{static}"'
            return PendingResize("Infeasible", text)
    return None


def _requests(pod: core_v1.Pod, resource: str) -> list[int]:
    """Return what each container requests, in thousandths."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return [milli(qos.requests(container.resources).get(resource, 0)) for container in every]
