"""From measurements to a number of replicas: the ratio of use to target, applied to the pods that count.

Pods that are being deleted or have failed do not count; pods that cannot be judged yet (pending, just started) and pods
without metrics are assumed to be whatever keeps the change small: they use nothing when the ratio says up, their whole
target when it says down. A ratio within the tolerance changes nothing.
Upstream: pkg/controller/podautoscaler/replica_calculator.go. Everything here is pure; amounts are in thousandths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from control.controllers import pods as pod_rules
from control.controllers.autoscaling.settings import Startup
from kube.api import core_v1
from kube.clock import after, parse_time
from kube.quantity import milli


class MetricsError(Exception):
    """Failure to compute a number of replicas; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class PodMetric:
    """Usage of one pod (in thousandths), over the `window` seconds before `time`."""

    value: int
    time: datetime
    window: float = 60.0


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Deviations of the ratio from 1 that cause no scaling."""

    down: float = 0.1
    up: float = 0.1

    def within(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Proposal:
    """A number of replicas and what was measured: percent of the requests where they count, thousandths a pod."""

    replicas: int
    usage: int
    utilization: int | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """Pods by how far they count; the names of all but the ready ones."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


def group(
    pods: Iterable[core_v1.Pod], metrics: Mapping[str, PodMetric], resource: str, startup: Startup, now: datetime
) -> Groups:
    """Sort pods by whether they count."""
    ready = 0
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        name = pod.metadata.name or ""
        metric = metrics.get(name)
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            ignored.add(name)
        elif pod.status.phase == "Pending":
            unready.add(name)
        elif metric is None:
            missing.add(name)
        elif resource == "cpu" and _starting(pod, metric, startup, now):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _starting(pod: core_v1.Pod, metric: PodMetric, startup: Startup, now: datetime) -> bool:
    condition = pod_rules.condition(pod, "Ready")
    if condition is None or not pod.status.start_time:
        return True
    started = parse_time(pod.status.start_time)
    turned = parse_time(condition.last_transition_time) if condition.last_transition_time else started
    if after(started, startup.cpu_initialization) > now:
        return condition.status == "False" or metric.time < after(turned, metric.window)
    return condition.status == "False" and after(started, startup.initial_readiness) > turned


def requests_of(pods: Iterable[core_v1.Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return what each pod (or the one container of it) requests, in thousandths; raises MetricsError if one does not."""
    found = {}
    for pod in pods:
        whole = pod.spec.resources.requests.get(resource) if pod.spec.resources is not None else None
        if whole is not None and not container:
            found[pod.metadata.name or ""] = milli(whole)
            continue
        total = 0
        sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
        for one in [*pod.spec.containers, *sidecars]:
            if container in ("", one.name):
                request = one.resources.requests.get(resource) if one.resources is not None else None
                if request is None:
                    raise MetricsError(
                        f"missing request for {resource} in container {one.name} of Pod {pod.metadata.name}"
                    )
                total += milli(request)
        found[pod.metadata.name or ""] = total
    return found


def by_utilization(
    current: int,
    target: int,
    pods: Sequence[core_v1.Pod],
    metrics: Mapping[str, PodMetric],
    resource: str,
    tolerances: Tolerances,
    startup: Startup,
    now: datetime,
    container: str = "",
) -> Proposal:
    """Aim at `target` percent of the requests (GetResourceReplicas)."""
    groups, counted = _counted(pods, metrics, resource, startup, now)
    requests = requests_of(pods, resource, container)

    def ratio(values: Mapping[str, PodMetric]) -> tuple[float, int, int]:
        known = [name for name in values if name in requests]
        total, wanted = sum(values[name].value for name in known), sum(requests[name] for name in known)
        if not wanted:
            raise MetricsError("no metrics returned matched known pods")
        utilization = total * 100 // wanted
        return utilization / target, utilization, total // len(known)

    first, utilization, usage = ratio(counted)
    full = max(100, target)
    replicas = _rebalanced(
        current, first, groups, counted, tolerances, lambda name: requests[name] * full // 100, lambda v: ratio(v)[0]
    )
    return Proposal(replicas, usage, utilization)


def by_value(
    current: int,
    target: int,
    pods: Sequence[core_v1.Pod],
    metrics: Mapping[str, PodMetric],
    resource: str,
    tolerances: Tolerances,
    startup: Startup,
    now: datetime,
) -> Proposal:
    """Aim at `target` thousandths a pod (calcPlainMetricReplicas); resource is "" for a metric that is none."""
    groups, counted = _counted(pods, metrics, resource, startup, now)

    def usage_of(values: Mapping[str, PodMetric]) -> int:
        return sum(metric.value for metric in values.values()) // len(values)

    usage = usage_of(counted)
    replicas = _rebalanced(
        current, usage / target, groups, counted, tolerances, lambda name: target, lambda v: usage_of(v) / target
    )
    return Proposal(replicas, usage)


def _counted(
    pods: Sequence[core_v1.Pod], metrics: Mapping[str, PodMetric], resource: str, startup: Startup, now: datetime
) -> tuple[Groups, dict[str, PodMetric]]:
    if not pods:
        raise MetricsError("no pods returned by selector while calculating replica count")
    groups = group(pods, metrics, resource, startup, now)
    out = groups.unready | groups.ignored
    counted = {name: metric for name, metric in metrics.items() if name not in out}
    if not counted:
        raise MetricsError("did not receive metrics for targeted pods (pods might be unready)")
    return groups, counted


def _rebalanced(
    current: int,
    ratio: float,
    groups: Groups,
    counted: Mapping[str, PodMetric],
    tolerances: Tolerances,
    fallback: Callable[[str], int],
    ratio_of: Callable[[Mapping[str, PodMetric]], float],
) -> int:
    """Apply a ratio, assuming what keeps the change small of the pods that were not measured."""
    with_unready = bool(groups.unready) and ratio > 1.0
    if not with_unready and not groups.missing:
        return current if tolerances.within(ratio) else math.ceil(ratio * groups.ready)
    some = next(iter(counted.values()))
    values = dict(counted)
    if ratio < 1.0:
        values |= {name: replace(some, value=fallback(name)) for name in groups.missing}
    elif ratio > 1.0:
        values |= {name: replace(some, value=0) for name in groups.missing}
    if with_unready:
        values |= {name: replace(some, value=0) for name in groups.unready}
    again = ratio_of(values)
    if tolerances.within(again) or (ratio < 1.0 < again) or (ratio > 1.0 > again):
        return current
    replicas = math.ceil(again * len(values))
    if (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current):
        return current
    return replicas


def by_total(current: int, usage: int, target: int, pods: Sequence[core_v1.Pod], tolerances: Tolerances) -> int:
    """Aim at `target` of a value that is not the pods' own (GetObjectMetricReplicas, GetExternalMetricReplicas)."""
    ratio = usage / target
    if current == 0:
        return math.ceil(ratio)
    if tolerances.within(ratio):
        return current
    if not pods:
        raise MetricsError(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        )
    ready = sum(1 for pod in pods if pod.status.phase == "Running" and pod_rules.is_ready(pod))
    return math.ceil(ratio * ready)


def by_share(current: int, usage: int, target: int, tolerances: Tolerances) -> Proposal:
    """Aim at `target` of such a value for each replica (GetExternalPerPodMetricReplicas)."""
    replicas = current
    if current == 0 or not tolerances.within(usage / (target * current)):
        replicas = math.ceil(usage / target)
    return Proposal(replicas, math.ceil(usage / current) if current else usage)
