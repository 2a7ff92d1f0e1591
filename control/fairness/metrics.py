"""Metrics of priority and fairness, with upstream's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from control.fairness.fairness import Fairness

_PREFIX = "apiserver_flowcontrol"


def collect(fairness: Fairness) -> Iterator[Any]:
    """Yield metric families for prometheus_client."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["priority_level"]
    rows = (
        ("nominal_limit_seats", "Seats of a priority level.", "nominal"),
        (
            "current_limit_seats",
            "Seats of a priority level now: what it may borrow comes on top when it asks.",
            "nominal",
        ),
        ("current_executing_seats", "Seats taken.", "executing"),
    )
    levels = [level for level in fairness.levels.values() if not level.exempt]
    for name, text, attribute in rows:
        gauge = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
        for level in levels:
            gauge.add_metric([level.name], getattr(level, attribute))
        yield gauge
    both = ["flow_schema", "priority_level"]
    waiting = GaugeMetricFamily(f"{_PREFIX}_current_inqueue_requests", "Requests that wait in queues.", labels=both)
    counted = Counter(
        (waiter.about.schema, level.name)
        for level in levels
        for queue in level.lines.values()
        for waiter in queue.waiting
        if waiter.about is not None
    )
    for key, count in counted.items():
        waiting.add_metric(list(key), count)
    yield waiting
    dispatched = CounterMetricFamily(f"{_PREFIX}_dispatched_requests", "Requests that were given seats.", labels=both)
    running = GaugeMetricFamily(f"{_PREFIX}_current_executing_requests", "Requests that have seats.", labels=both)
    for key, served in fairness.served.items():
        dispatched.add_metric(list(key), served.dispatched)
        running.add_metric(list(key), served.executing)
    yield dispatched
    yield running
    refused = CounterMetricFamily(
        f"{_PREFIX}_rejected_requests", "Requests turned away.", labels=["flow_schema", "priority_level", "reason"]
    )
    for why, count in fairness.refused.items():
        refused.add_metric(list(why), count)
    yield refused
