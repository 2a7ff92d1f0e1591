"""Quality of service: a pod's class, and its CPU shares and OOM score adjustments.

The numbers are upstream's (pkg/kubelet/qos/policy.go, pkg/kubelet/cm/helpers_linux.go): they decide which process is killed
first when memory runs out, so a node that mixes agents must rank pods alike. The agent's own evictions come before that
(`agent/eviction/ranking.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kube.api import core_v1
from kube.quantity import MOST, Quantity, milli, value

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"

MIN_SHARES, MAX_SHARES = 2, 262144
MIN_QUOTA_US = 1000
_GUARANTEED_SCORE, _BEST_EFFORT_SCORE = -997, 1000
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000

Resources: TypeAlias = Mapping[str, Quantity]


def qos_class(pod: core_v1.Pod) -> str:
    """Return the pod's class: what the API server wrote, or what its containers' resources make of it."""
    if pod.status.qos_class:
        return pod.status.qos_class
    if pod.spec.resources is not None and (pod.spec.resources.limits or pod.spec.resources.requests):
        parts = [pod.spec.resources]
    else:
        parts = [c.resources or core_v1.ResourceRequirements() for c in _containers(pod)]
    anything = False
    guaranteed = True
    for part in parts:
        for name in ("cpu", "memory"):
            limit = part.limits.get(name, 0)
            request = part.requests.get(name, limit)
            anything |= milli(limit) > 0 or milli(request) > 0
            guaranteed &= milli(limit) > 0 and milli(request) == milli(limit)
    if not anything:
        return BEST_EFFORT
    return GUARANTEED if guaranteed else BURSTABLE


def _containers(pod: core_v1.Pod) -> list[core_v1.Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def limits(resources: core_v1.ResourceRequirements | None) -> Resources:
    return resources.limits if resources else {}


def requests(resources: core_v1.ResourceRequirements | None) -> Resources:
    """Return the requests, a limit standing in for a request that is not given."""
    if resources is None:
        return {}
    return {**resources.limits, **resources.requests}


def cpu_shares(millicores: int) -> int:
    """Turn a CPU request into cgroup v1 shares."""
    return max(MIN_SHARES, min(MAX_SHARES, millicores * 1024 // 1000))


def cpu_weight(shares: int) -> int:
    """Turn v1 shares into a v2 weight, 1 to 10000, so that 1024, a whole processor, is the kernel's default of 100.

    The curve through least, default and most is opencontainers/cgroups', upstream's since v1.35.
    """
    bits = math.log2(min(max(shares, MIN_SHARES), MAX_SHARES))
    return math.ceil(round(10 ** ((bits * bits + 125 * bits) / 612 - 7 / 34), 9))


def cpu_quota(millicores: int, period_us: int) -> int:
    """Turn a CPU limit into microseconds a period; 0 is no limit."""
    return min(max(MIN_QUOTA_US, millicores * period_us // 1000), MOST) if millicores else 0


def pod_request(pod: core_v1.Pod, name: str) -> int:
    """Return what the pod requests of "cpu" (millicores) or another resource (units)."""
    return pod_requests(pod).get(name, 0)


def pod_requests(pod: core_v1.Pod) -> dict[str, int]:
    """Return everything that the pod requests, as the scheduler counts it: its own requests stand for its containers'."""
    found = _sums(pod, requests)
    if pod.spec.resources is not None:
        found |= {name: _amount(name, amount) for name, amount in pod.spec.resources.requests.items()}
    for name, amount in pod.spec.overhead.items():
        found[name] = found.get(name, 0) + _amount(name, amount)
    return found


def pod_limit(pod: core_v1.Pod, name: str) -> int:
    """Sum the pod's limits; 0 if a container has none, so that the pod is not limited."""
    if pod.spec.resources is not None and name in pod.spec.resources.limits:
        return _amount(name, pod.spec.resources.limits[name])
    if any(name not in limits(c.resources) for c in _containers(pod)):
        return 0
    return min(_sums(pod, limits).get(name, 0) + _amount(name, pod.spec.overhead.get(name, 0)), MOST)


def sum_of_limits(pod: core_v1.Pod, name: str) -> int | None:
    """Sum the limits of the containers that have one, and the pod's overhead; None if no container has one (PodLimits)."""
    found = _sums(pod, limits).get(name)
    return None if found is None else found + _amount(name, pod.spec.overhead.get(name, 0))


def _sums(pod: core_v1.Pod, read: Callable[[core_v1.ResourceRequirements | None], Resources]) -> dict[str, int]:
    """Return for each resource the larger of main containers with sidecars, and an init container with those before it."""
    total, sidecars, peak = Counter[str](), Counter[str](), dict[str, int]()
    for container in pod.spec.containers:
        total.update({name: _amount(name, amount) for name, amount in read(container.resources).items()})
    for container in pod.spec.init_containers:
        for name, amount in read(container.resources).items():
            together = sidecars[name] + _amount(name, amount)
            if container.restart_policy == "Always":
                sidecars[name] = together
            peak[name] = max(peak.get(name, 0), together)
    return {name: max(total[name] + sidecars[name], peak.get(name, 0)) for name in {*total, *peak}}


def _amount(name: str, quantity: Quantity) -> int:
    return milli(quantity) if name == "cpu" else value(quantity)


def is_critical(pod: core_v1.Pod, *, static: bool) -> bool:
    """Return whether the pod is static or of system-critical priority; mirror pods never run.

    `static` comes from the agent's own record of the pod's source; the pod's author may write any annotation.
    """
    return static or (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY


def oom_score_adj(pod: core_v1.Pod, container: core_v1.Container, memory_capacity: int) -> int:
    """Return the container's oom_score_adj, from -997 (killed last) to 1000."""
    if (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY + 1000:
        return _GUARANTEED_SCORE
    found = qos_class(pod)
    if found == GUARANTEED:
        return _GUARANTEED_SCORE
    if found == BEST_EFFORT:
        return _BEST_EFFORT_SCORE
    request = value(requests(container.resources).get("memory", 0))
    if container.restart_policy == "Always" and any(container is c for c in pod.spec.init_containers):
        # A sidecar must not be killed before the container that needs it.
        request = max(request, _least(value(requests(c.resources).get("memory", 0)) for c in pod.spec.containers))
    request += _unclaimed_memory(pod)
    score = 1000 - 1000 * request // max(memory_capacity, 1)
    return min(max(score, 1000 + _GUARANTEED_SCORE), _BEST_EFFORT_SCORE - 1)


def _unclaimed_memory(pod: core_v1.Pod) -> int:
    """Return each container's part of what the pod requests as a whole beyond its containers' requests."""
    if pod.spec.resources is None or "memory" not in requests(pod.spec.resources):
        return 0
    lasting = [*(c for c in pod.spec.init_containers if c.restart_policy == "Always"), *pod.spec.containers]
    claimed = sum(value(requests(c.resources).get("memory", 0)) for c in lasting)
    return max(value(requests(pod.spec.resources)["memory"]) - claimed, 0) // max(len(lasting), 1)


def _least(values: Iterable[int]) -> int:
    return min(values, default=0)
