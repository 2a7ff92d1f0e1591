"""Trigger time of endpoints: the annotation from which network programming latency is measured.

It is the earliest of the moments that are new since the last write: a Service's creation, a pod's Ready transition.
Upstream: endpointslice/trigger_time_tracker.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1

ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


class TriggerTimes:
    """Records the processed trigger times of each Service."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, dict[str, str]]] = {}

    def next(self, key: str, service: core_v1.Service, pods: Iterable[core_v1.Pod]) -> str:
        """Return the RFC 3339 time of the change that is being answered, or "" where it is not known."""
        created = service.metadata.creation_timestamp or ""
        moments = {pod.metadata.name or "": _ready_time(pod) for pod in pods}
        known = self._known.get(key)
        self._known[key] = (created, moments)
        if known is None:
            fresh = [created, *moments.values()]
        else:
            fresh = [moment for name, moment in moments.items() if known[1].get(name) != moment]
            if known[0] != created:
                fresh.append(created)
        return min((moment for moment in fresh if moment), default="")

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def _ready_time(pod: core_v1.Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.last_transition_time or ""
    return ""
