"""Metrics of the agent's loops: which of them run, and how often each failed and started again."""

from __future__ import annotations

from collections.abc import Mapping

from agent.usage.exposition import Text
from kube.loops import Loop


class LoopMetrics:
    """Two families about every loop of a table."""

    def __init__(self) -> None:
        self.table: Mapping[str, Loop] = {}

    def write(self, text: Text) -> None:
        """Add both families to a text."""
        loops = [({"loop": name}, loop) for name, loop in sorted(self.table.items())]
        text.family(
            "wherry_loop_running",
            "gauge",
            "Whether a loop of the agent runs (0: it ended or waits to start again after a failure)",
            [(labels, float(loop.running), 0.0) for labels, loop in loops],
        )
        text.family(
            "wherry_loop_failures_total",
            "counter",
            "Number of times that a loop of the agent failed and started again",
            [(labels, float(loop.failures), 0.0) for labels, loop in loops],
        )
