"""Groups pods by priority for a node shutdown, with the period of each group (nodeshutdown_manager.go). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.cgroups.qos import SYSTEM_CRITICAL_PRIORITY
from agent.config import ShutdownPeriod
from agent.kubelet_configuration import ConfigError, KubeletConfiguration, seconds
from kube.api import core_v1


def periods(total: float, critical: float) -> tuple[ShutdownPeriod, ...]:
    """Read shutdownGracePeriod and shutdownGracePeriodCriticalPods: ordinary pods first, then critical ones."""
    if total <= 0 or critical > total:
        return ()
    return ShutdownPeriod(0, int(total - critical)), ShutdownPeriod(SYSTEM_CRITICAL_PRIORITY, int(critical))


def read(file: KubeletConfiguration) -> tuple[ShutdownPeriod, ...]:
    """Read the periods from the fields of either form. Raise ConfigError."""
    total = seconds("shutdownGracePeriod", file.shutdown_grace_period)
    critical = seconds("shutdownGracePeriodCriticalPods", file.shutdown_grace_period_critical_pods)
    if file.shutdown_grace_period_by_pod_priority:
        if total or critical:
            raise ConfigError(
                "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
            )
        return tuple(
            ShutdownPeriod(one.priority, one.shutdown_grace_period_seconds)
            for one in file.shutdown_grace_period_by_pod_priority
        )
    if critical > total:
        raise ConfigError("shutdownGracePeriodCriticalPods must be <= shutdownGracePeriod")
    for name, given in (("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)):
        if 0 < given < 1:
            raise ConfigError(f"{name} must be either zero or otherwise >= 1 sec")
    return periods(total, critical)


def grouped(
    configured: Iterable[ShutdownPeriod], pods: Iterable[core_v1.Pod]
) -> Sequence[tuple[ShutdownPeriod, Sequence[core_v1.Pod]]]:
    """Return the pods of each period, lowest priority first; below the lowest counts as the lowest."""
    ordered = sorted(configured, key=lambda period: period.priority)
    groups: list[tuple[ShutdownPeriod, list[core_v1.Pod]]] = [(period, []) for period in ordered]
    for pod in pods:
        own = [group for group in groups if group[0].priority <= (pod.spec.priority or 0)]
        (own[-1] if own else groups[0])[1].append(pod)
    return groups


def grace(pod: core_v1.Pod, period: ShutdownPeriod) -> int:
    """Return the seconds a pod has to end: its own grace, at most the period's."""
    own = pod.spec.termination_grace_period_seconds
    return period.seconds if own is None else min(own, period.seconds)
