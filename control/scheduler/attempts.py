"""Entries of the journal about attempts to schedule a pod, with the nodes of each reason."""

from __future__ import annotations

from control.scheduler.framework import Diagnosis
from control.scheduler.queued_pod import QueuedPod
from kube.journal import Journal, kind_key

MOST_NODES = 10
"""Nodes that are named for one reason; all are counted."""


def unschedulable(journal: Journal, scheduler: str, queued: QueuedPod, diagnosis: Diagnosis, message: str) -> None:
    """Record an attempt that found no node, with the nodes of each reason."""
    pod = queued.info.pod.metadata
    reasons: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for node, rejection in diagnosis.rejections.items():
        for reason in rejection.reasons:
            counts[reason] = counts.get(reason, 0) + 1
            named = reasons.setdefault(reason, [])
            if len(named) < MOST_NODES:
                named.append(node)
    details = {"attempt": queued.attempts, "nodes": reasons, "counts": counts}
    text = f"found no node in attempt {queued.attempts}: {message}"
    namespace, name = pod.namespace or "", pod.name or ""
    journal.record(kind_key("", "Pod"), namespace, name, scheduler, text, uid=pod.uid or "", details=details)
