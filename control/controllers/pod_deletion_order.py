"""Order in which controllers delete pods that are too many. Pure; `now` is passed in.

Pods without a node go first, then by phase and readiness, the annotated deletion cost, the number of pods on the same node,
restarts, and age. The ReplicaSet and Job controllers use it; a Deployment only sizes its ReplicaSets. Upstream:
pkg/controller/controller_utils.go, ActivePodsWithRanks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key

from control.controllers.pods import is_active, is_ready, ready_since
from kube.api import core_v1
from kube.clock import parse_time

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


def same_node_ranks(pods: Sequence[core_v1.Pod], related: Iterable[core_v1.Pod]) -> list[int]:
    """Return for each pod how many active related pods share its node: crowded nodes lose pods first."""
    on_node: dict[str, int] = {}
    for pod in related:
        if is_active(pod) and pod.spec.node_name:
            on_node[pod.spec.node_name] = on_node.get(pod.spec.node_name, 0) + 1
    return [on_node.get(pod.spec.node_name or "", 0) for pod in pods]


def deletion_order(pods: Sequence[core_v1.Pod], ranks: Sequence[int], now: datetime) -> list[core_v1.Pod]:
    """Sort pods so that those to be deleted first come first (upstream: ActivePodsWithRanks)."""

    def compare(a: tuple[core_v1.Pod, int], b: tuple[core_v1.Pod, int]) -> int:
        return _compare_for_deletion(a[0], a[1], b[0], b[1], now)

    return [pod for pod, _ in sorted(zip(pods, ranks, strict=True), key=cmp_to_key(compare))]


def _compare_for_deletion(a: core_v1.Pod, a_rank: int, b: core_v1.Pod, b_rank: int, now: datetime) -> int:
    """Return < 0 if `a` is to be deleted before `b`."""
    steps = (
        bool(a.spec.node_name) - bool(b.spec.node_name),
        _PHASE_ORDER.get(a.status.phase or "Pending", 0) - _PHASE_ORDER.get(b.status.phase or "Pending", 0),
        is_ready(a) - is_ready(b),
        deletion_cost(a) - deletion_cost(b),
        b_rank - a_rank,
    )
    for step in steps:
        if step:
            return step
    if is_ready(a):
        step = _younger_first(ready_since(a), ready_since(b), a, b, now)
        if step:
            return step
    for sidecars in (False, True):
        step = _restarts(b, sidecars=sidecars) - _restarts(a, sidecars=sidecars)
        if step:
            return step
    step = _younger_first(_created(a), _created(b), a, b, now)
    return step or _by_uid(a, b)


def _younger_first(a: datetime | None, b: datetime | None, x: core_v1.Pod, y: core_v1.Pod, now: datetime) -> int:
    """Compare ages by powers of two, so that pods of about one age are picked at random (by UID)."""
    if a == b:
        return 0
    if a is None or b is None:
        return -1 if a is None else 1
    buckets = _age_bucket(a, now) - _age_bucket(b, now)
    if buckets:
        return buckets
    return _by_uid(x, y)


def _by_uid(a: core_v1.Pod, b: core_v1.Pod) -> int:
    left, right = a.metadata.uid or "", b.metadata.uid or ""
    return (left > right) - (left < right)


def _age_bucket(since: datetime, now: datetime) -> int:
    nanoseconds = (now - since) / timedelta(microseconds=1) * 1000
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _created(pod: core_v1.Pod) -> datetime | None:
    return parse_time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else None


def _restarts(pod: core_v1.Pod, *, sidecars: bool) -> int:
    if not sidecars:
        return max((status.restart_count for status in pod.status.container_statuses), default=0)
    always = {c.name for c in pod.spec.init_containers if c.restart_policy == "Always"}
    return max((s.restart_count for s in pod.status.init_container_statuses if s.name in always), default=0)


def deletion_cost(pod: core_v1.Pod) -> int:
    """Return the annotated cost of deleting a pod; 0 if there is none or it is no 32-bit integer."""
    text = pod.metadata.annotations.get(DELETION_COST, "")
    if not text or text.startswith("+") or (len(text) > 1 and text.lstrip("-").startswith("0")):
        return 0
    try:
        cost = int(text)
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0
