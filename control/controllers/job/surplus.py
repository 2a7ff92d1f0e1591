"""Selects the surplus pods of a Job. Pure.

A pod that serves no index would keep others from starting, for it is counted as one that runs.
"""

from __future__ import annotations

from datetime import datetime

from control.controllers.job.tally import Tally, index_of, is_indexed
from control.controllers.pod_deletion_order import deletion_order, same_node_ranks
from kube.api import batch_v1, core_v1


def surplus(
    job: batch_v1.Job, counted: Tally, active: list[core_v1.Pod], wanted: int, now: datetime
) -> list[core_v1.Pod]:
    """Return the pods to delete: those that serve no index first, then what is too many (upstream: activePodsForRemoval)."""
    useless = _useless(job, counted, active, now) if is_indexed(job) else []
    more = len(active) - wanted - len(useless)
    if more > 0:
        known = {pod.metadata.uid for pod in useless}
        ranks = same_node_ranks(active, active)
        ordered = deletion_order(active, ranks, now)
        useless += [pod for pod in ordered if pod.metadata.uid not in known][:more]
    return useless


def _useless(job: batch_v1.Job, counted: Tally, active: list[core_v1.Pod], now: datetime) -> list[core_v1.Pod]:
    """Return the pods whose index is none, has ended, or has another pod; of several the one is kept that goes last."""
    found: list[core_v1.Pod] = []
    by_index: dict[int, list[core_v1.Pod]] = {}
    for pod in active:
        index = index_of(pod)
        ended = index in counted.completed or index in counted.failed_indexes
        if ended or not 0 <= index < (job.spec.completions or 0):
            found.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    for same in by_index.values():
        if len(same) > 1:
            found += deletion_order(same, same_node_ranks(same, same), now)[:-1]
    return found
