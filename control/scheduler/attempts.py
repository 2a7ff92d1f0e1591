"""Entries of the journal about attempts to schedule a pod, with the nodes of each reason, and scores.

A node that was found is recorded for a limited number of pods a second: choosing one takes 70 µs, and the entry would take a
tenth of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from control.scheduler.candidates import Choice
from control.scheduler.framework import Diagnosis, Rejection
from control.scheduler.queued_pod import QueuedPod
from kube.clock import Clock
from kube.journal import Journal, kind_key

_PODS = kind_key("", "Pod")
MOST_NODES = 10
"""Nodes that are named for one reason; all are counted."""
BEST = 3
"""Nodes whose scores are recorded."""
MOST_REJECTED = 50
"""Rejected nodes whose reasons are recorded for a pod that was placed."""
BURST, A_SECOND = 50, 20
"""Pods whose placement is recorded."""


def unschedulable(journal: Journal, scheduler: str, queued: QueuedPod, diagnosis: Diagnosis, message: str) -> None:
    """Record an attempt that found no node, with the nodes of each reason."""
    pod = queued.info.pod.metadata
    reasons, counts = _reasons(diagnosis.rejections.items())
    details = {"attempt": queued.attempts, "nodes": reasons, "counts": counts}
    text = f"found no node in attempt {queued.attempts}: {message}"
    namespace, name = pod.namespace or "", pod.name or ""
    journal.record(_PODS, namespace, name, scheduler, text, uid=pod.uid or "", details=details)


class Placements:
    """Records the nodes that were chosen for pods."""

    def __init__(self, journal: Journal | None, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._tokens, self._since = float(BURST), clock.monotonic()

    def placed(self, scheduler: str, queued: QueuedPod, node: str, choice: Choice | None) -> None:
        """Record a pod's node with the best scores and the nodes that were rejected, if the rate allows it."""
        if self._journal is None or not self._allowed():
            return
        pod = queued.info.pod.metadata
        if choice is None:
            text, details = f"chose {node}: the next of those compared for the same template", None
        else:
            text, details = _chosen(node, choice)
        namespace, name = pod.namespace or "", pod.name or ""
        self._journal.record(_PODS, namespace, name, scheduler, text, uid=pod.uid or "", details=details)

    def _allowed(self) -> bool:
        now = self._clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._since) * A_SECOND)
        self._since = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def _chosen(node: str, choice: Choice) -> tuple[str, dict[str, Any] | None]:
    candidates, scores = choice
    best = sorted(set(scores), reverse=True)[:BEST]
    shown: list[str] = []
    for score in best:
        position = -1
        while len(shown) < BEST:
            try:
                position = scores.index(score, position + 1)
            except ValueError:
                break
            shown.append(f"{candidates.nodes[position].name} {score}")
    rejections = candidates.diagnosis.rejections
    text = f"chose {node} of {len(scores)} nodes that fit"
    text += f", by score: {', '.join(shown)}" if len(scores) > 1 else ""
    text += f"; {len(rejections)} do not fit" if rejections else ""
    if not rejections:
        return text, None
    reasons, counts = _reasons(islice(rejections.items(), MOST_REJECTED))
    return text, {"nodes": reasons, "counts": counts}


def _reasons(rejections: Iterable[tuple[str, Rejection]]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return nodes and their number by reason."""
    reasons: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for node, rejection in rejections:
        for reason in rejection.reasons:
            counts[reason] = counts.get(reason, 0) + 1
            named = reasons.setdefault(reason, [])
            if len(named) < MOST_NODES:
                named.append(node)
    return reasons, counts
