"""A pod's allocatedResources and resources: the node's allocation to it as a whole, and its actuated cgroup settings. Pure.

Upstream reads the cgroup and converts shares and quotas back, which rounds; here the actuated sizes that the cgroup was set
from are shown. Upstream also keeps the memory request of before a resize for as long as the pod runs; here it is the actuated
one (KEP-5419; pkg/kubelet/kubelet_pods.go: convertToAPIPodLevelResourcesStatus).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from agent.cgroups import qos
from agent.lifecycle.resize import NOTHING
from kube import quantity
from kube.api import core_v1
from kube.quantity import Quantity

Amounts = dict[str, Quantity]
_LEAST_REQUEST, _LEAST_LIMIT = 2, 10
"""Millicores: a cgroup has no less, so smaller requests and limits are shown as in the spec only."""


def set_resources(status: core_v1.PodStatus, allocated: core_v1.Pod, actual: core_v1.Pod) -> None:
    """Set both fields of a status that has its phase; `actual` is the pod in its actuated size."""
    status.allocated_resources = pod_requests(allocated)
    if status.phase == "Running":
        status.resources = _of_cgroup(allocated, actual)
    else:
        status.resources = core_v1.ResourceRequirements(
            limits=_pod_limits(allocated), requests=dict(status.allocated_resources)
        )


def pod_requests(pod: core_v1.Pod) -> Amounts:
    """Return the pod's requests: its own, or the sums of its containers', with overhead (upstream: PodRequests)."""
    found = _sums(pod, lambda resources: resources.requests)
    if pod.spec.resources is not None:
        found |= pod.spec.resources.requests
    _add(found, pod.spec.overhead)
    return found


def _pod_limits(pod: core_v1.Pod) -> Amounts:
    found = _sums(pod, lambda resources: resources.limits)
    if pod.spec.resources is not None:
        found |= pod.spec.resources.limits
    _add(found, {name: amount for name, amount in pod.spec.overhead.items() if quantity.parse(found.get(name, 0))})
    return found


def _of_cgroup(allocated: core_v1.Pod, actual: core_v1.Pod) -> core_v1.ResourceRequirements:
    """Return the allocated resources with the values that the pod's cgroup has of the actual ones."""
    own = allocated.spec.resources or core_v1.ResourceRequirements()
    limits, requests = dict(own.limits), dict(own.requests)
    actual_requests, actual_limits = pod_requests(actual), _pod_limits(actual)
    cpu = actual_requests.get("cpu", 0)
    if max(quantity.milli(cpu), quantity.milli(requests.get("cpu", 0))) > _LEAST_REQUEST:
        requests["cpu"] = cpu
    if "memory" in actual_requests:
        requests["memory"] = actual_requests["memory"]
    limit = qos.pod_limit(actual, "cpu")
    if limit and max(limit, quantity.milli(limits.get("cpu", 0))) > _LEAST_LIMIT:
        limits["cpu"] = actual_limits["cpu"]
    if qos.pod_limit(actual, "memory"):
        limits["memory"] = actual_limits["memory"]
    return core_v1.ResourceRequirements(limits=limits, requests=requests)


def _sums(pod: core_v1.Pod, read: Callable[[core_v1.ResourceRequirements], Mapping[str, Quantity]]) -> Amounts:
    """Return for each resource the larger of main containers with sidecars, and an init container with those before it."""
    lasting: dict[str, list[Quantity]] = {}
    sidecars: dict[str, Decimal] = {}
    peaks: dict[str, tuple[Decimal, Quantity]] = {}
    for container in pod.spec.containers:
        for name, amount in read(container.resources or NOTHING).items():
            lasting.setdefault(name, []).append(amount)
    for container in pod.spec.init_containers:
        # Of what it does not name itself the sidecars have no more now than in the end.
        for name, amount in read(container.resources or NOTHING).items():
            together = quantity.plus(sidecars.get(name, Decimal(0)), quantity.parse(amount))
            if container.restart_policy == "Always":
                sidecars[name] = together
                lasting.setdefault(name, []).append(amount)
            elif name not in peaks or together > peaks[name][0]:
                peaks[name] = together, amount
    found = {name: quantity.total(amounts) for name, amounts in lasting.items()}
    for name, (number, model) in peaks.items():
        if name not in found or number > quantity.parse(found[name]):
            found[name] = quantity.render_like(number, model)
    return found


def _add(total: Amounts, more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = quantity.total([total[name], amount]) if name in total else amount
