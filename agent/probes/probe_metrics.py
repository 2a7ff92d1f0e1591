"""Counts probes and their results: the kubelet's prober_probe_total and prober_probe_duration_seconds.

Upstream: pkg/kubelet/prober (ProberResults, ProberDuration). The counts of a container are dropped when it is no longer probed,
so that they do not grow without limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from agent.probes.result import Verdict

Key = tuple[str, str, str, str, str]
"""Namespace, pod, pod UID, container, probe type (Startup, Liveness, Readiness)."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: Prometheus' defaults."""
_RESULTS = {Verdict.SUCCESS: "successful", Verdict.WARNING: "successful", Verdict.FAILURE: "failed"}


@dataclass(slots=True)
class Count:
    """One probe of one container."""

    results: dict[str, int] = field(default_factory=dict)
    durations: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    """Counts of probes by upper bound of their duration."""
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.results.values())


class ProbeMetrics:
    """All probes of the node."""

    def __init__(self) -> None:
        self._counts: dict[Key, Count] = {}

    def add(self, key: Key, verdict: Verdict, seconds: float) -> None:
        """Count a probe that took so long."""
        count = self._counts.setdefault(key, Count())
        result = _RESULTS.get(verdict, "unknown")
        count.results[result] = count.results.get(result, 0) + 1
        count.seconds += seconds
        for index, bound in enumerate(BUCKETS):
            if seconds <= bound:
                count.durations[index] += 1

    def forget(self, containers: Set[tuple[str, str]]) -> None:
        """Drop what is known of containers, which are given by the UIDs of their pods and their names."""
        for key in [key for key in self._counts if key[2:4] in containers]:
            del self._counts[key]

    def __iter__(self) -> Iterator[tuple[Key, Count]]:
        return iter(sorted(self._counts.items()))
