"""What /metrics says of priority and fairness, under upstream's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from control.fairness.fairness import Fairness

_PREFIX = "apiserver_flowcontrol"


def collect(fairness: Fairness) -> Iterator[Any]:
    """Yield metric families for prometheus_client."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["priority_level"]
    told = (
        ("nominal_limit_seats", "Seats of a priority level.", "nominal"),
        ("current_executing_seats", "Seats taken.", "executing"),
        ("current_inqueue_requests", "Requests that wait in queues.", "waiting"),
    )
    levels = [level for level in fairness.levels.values() if not level.exempt]
    for name, text, attribute in told:
        gauge = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
        for level in levels:
            gauge.add_metric([level.name], getattr(level, attribute))
        yield gauge
    begun = CounterMetricFamily(f"{_PREFIX}_dispatched_requests", "Requests that were given seats.", labels=labels)
    for level in levels:
        begun.add_metric([level.name], level.dispatched)
    yield begun
    refused = CounterMetricFamily(
        f"{_PREFIX}_rejected_requests", "Requests turned away.", labels=["flow_schema", "priority_level", "reason"]
    )
    for key, count in fairness.refused.items():
        refused.add_metric(list(key), count)
    yield refused
