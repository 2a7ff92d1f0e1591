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
    """Return why the node cannot give the pod what it now asks for; None where it can."""
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


def pending_for_swap(pod: core_v1.Pod, swaps: Callable[[core_v1.Container], bool]) -> PendingResize | None:
    """Return why a pod is not resized where one of its containers may swap: its swap limit cannot be changed while it runs."""
    for container in pod.spec.containers:
        if swaps(container) and not needs_restart(container, {"memory"}):
            return PendingResize("Infeasible", "In-place resize of containers with swap is not supported")
    return None
