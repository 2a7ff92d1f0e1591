"""Metrics of the agent's loops and tasks, which kube.loops counts, in the agent's own form without the client library."""

from __future__ import annotations

from agent.usage.exposition import Text
from kube.loops import FAILURES, RUNNING, TASKS, count_tasks


class LoopMetrics:
    """Families: which loops run, how often each failed and started again, and the number of tasks."""

    def write(self, text: Text) -> None:
        """Add them to a text."""
        for name, kind, metric in ((RUNNING.name, "gauge", RUNNING), (f"{FAILURES.name}_total", "counter", FAILURES)):
            samples = [({"loop": loop}, float(value), 0.0) for (loop,), value in sorted(metric.values.items())]
            text.family(name, kind, metric.text, samples)
        count_tasks()
        text.family(TASKS.name, "gauge", TASKS.text, [({}, value, 0.0) for value in TASKS.values.values()])
