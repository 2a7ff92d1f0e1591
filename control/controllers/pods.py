"""Predicates on pods for controllers: active, ready, available, and since when.

The rules are upstream's (pkg/controller/controller_utils.go, pkg/api/v1/pod/util.go). All functions are pure; `now` is
passed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kube.api import core_v1
from kube.clock import after, parse_time


def is_terminal(pod: core_v1.Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def is_active(pod: core_v1.Pod) -> bool:
    """A pod that counts as a replica: neither finished nor being deleted."""
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is None


def is_terminating(pod: core_v1.Pod) -> bool:
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is not None


def condition(pod: core_v1.Pod, type_: str) -> core_v1.PodCondition | None:
    for found in pod.status.conditions:
        if found.type == type_:
            return found
    return None


def is_ready(pod: core_v1.Pod) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found.status == "True"


def ready_since(pod: core_v1.Pod) -> datetime | None:
    """Return when a ready pod became so, or None."""
    found = condition(pod, "Ready")
    if found is None or found.status != "True" or not found.last_transition_time:
        return None
    return parse_time(found.last_transition_time)


def available_in(pod: core_v1.Pod, min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until a ready pod counts as available (0: it does), or None if it is not ready."""
    if not is_ready(pod):
        return None
    if min_ready_seconds <= 0:
        return 0.0
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, (after(since, min_ready_seconds) - now).total_seconds())


def is_available(pod: core_v1.Pod, min_ready_seconds: int, now: datetime) -> bool:
    return available_in(pod, min_ready_seconds, now) == 0.0


def next_availability(pods: Iterable[core_v1.Pod], min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until the next ready pod turns available, or None if none is on its way."""
    waits = [wait for pod in pods if (wait := available_in(pod, min_ready_seconds, now))]
    return min(waits, default=None)
