"""Decides whether the node has room for a pod's new size (KEP-1287). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.cgroups import qos
from agent.lifecycle.resize import PendingResize, needs_restart
from agent.pods.pod_requests import PodRequests
from kube.api import core_v1
from kube.quantity import Quantity, milli, value


def pending(
    pod: core_v1.Pod, others: Iterable[PodRequests], allocatable: Mapping[str, Quantity]
) -> PendingResize | None:
    """Return why the node cannot satisfy the pod's requested size; None if it can."""
    others = list(others)
    for name, amount in (("cpu", milli), ("memory", value)):
        if name not in allocatable:
            continue
        requested, capacity = qos.pod_request(pod, name), amount(allocatable[name])
        if requested > capacity:
            message = f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            return PendingResize("Infeasible", message)
        used = sum(other.requests.get(name, 0) for other in others)
        if requested + used > capacity:
            message = (
                f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            )
            return PendingResize("Deferred", message, f"OutOf{name}")
    return None


def pending_for_swap(
    pod: core_v1.Pod, allocated: core_v1.Pod, swaps: Callable[[core_v1.Pod, core_v1.Container], bool]
) -> PendingResize | None:
    """Return why a container that may swap cannot get another memory request: its swap limit cannot change while it runs."""
    before = {c.name: c for c in (*allocated.spec.init_containers, *allocated.spec.containers)}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        has = before.get(container.name)
        if has is None or _memory_request(container) == _memory_request(has) or needs_restart(has, {"memory"}):
            continue
        if swaps(pod, container) or swaps(allocated, has):
            return PendingResize("Infeasible", "In-place resize of containers with swap is not supported.")
    return None


def _memory_request(container: core_v1.Container) -> int:
    return value(qos.requests(container.resources).get("memory", 0))
