"""Limit on the memory of cached computations for pods that wait to be scheduled again.

Compiled affinity takes forty times the memory of the terms in the spec. What was computed longest ago is dropped first, and
computed again in the next attempt.
"""

from __future__ import annotations

from control.scheduler.podinfo import PodInfo

MOST_BYTES = 64 << 20
"""Limit for all waiting pods; what nominated pods need stays, since it is read in attempts of others."""
COMPILED, OTHER = 40, 8
"""Bytes for each byte of a spec with affinity or topology spread constraints, and of another one."""


class PreparedPods:
    """Waiting pods for which results are kept, by their keys, the oldest first."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self.bytes = 0

    def add(self, pod: PodInfo) -> None:
        """Keep what was computed for a pod, and forget that of others if it is too much."""
        self.remove(pod.key)
        self._pods[pod.key] = pod
        self.bytes += _bytes(pod)
        while self.bytes > MOST_BYTES:
            oldest = self._pods.pop(next(iter(self._pods)))
            self.bytes -= _bytes(oldest)
            oldest.forget()

    def remove(self, key: str) -> None:
        """Remove a pod that is retried or deleted."""
        known = self._pods.pop(key, None)
        if known is not None:
            self.bytes -= _bytes(known)


def _bytes(pod: PodInfo) -> int:
    spec = pod.pod.spec
    return pod.size * (COMPILED if spec.affinity is not None or spec.topology_spread_constraints else OTHER)
