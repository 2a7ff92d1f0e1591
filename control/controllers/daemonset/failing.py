"""Failed daemon pods are replaced later and later: a node whose kubelet refuses the pod would else get one after the other.

The first is replaced at once, the next after a second, twice as long each time up to a quarter of an hour; another template
begins again, as does a node on which nothing failed for twice the longest time.
Upstream: failedPodsBackoff of the daemon set controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST, LONGEST = 1.0, 15 * 60.0
"""Seconds."""


@dataclass(slots=True)
class Failures:
    """Failures on the nodes of one DaemonSet at one generation, by the monotonic clock."""

    generation: int = 0
    _nodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Node -> (how long it has to wait, since when)."""

    def at(self, generation: int) -> Failures:
        """Begin again where the spec has changed."""
        if generation != self.generation:
            self.generation = generation
            self._nodes.clear()
        return self

    def wait(self, node: str, now: float) -> float:
        """Return the seconds until a pod that has failed on a node may be replaced."""
        delay, since = self._nodes.get(node, (0.0, now))
        return max(0.0, since + delay - now)

    def note(self, node: str, now: float) -> None:
        """Record that a failed pod of a node is replaced now."""
        delay, since = self._nodes.get(node, (0.0, now))
        if now - since > 2 * LONGEST:
            delay = 0.0
        self._nodes[node] = min(2 * delay, LONGEST) or FIRST, now
