"""Limit on the selectors of an autoscaler: they are sent to the metrics APIs in the target of a request, which has a limit too.

Requests within the process would have none, and quoting and parsing a selector of 1 MiB for each metric blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.controllers.autoscaling.replicas import MetricsError
from kube.api import autoscaling_v2, meta_v1

LARGEST_SELECTOR = 65_535
"""Bytes of a selector as text, as of a request's target at the API server."""
LONGEST_SHOWN = 512
"""Characters of a selector in a condition or an event."""
_WHY = f"more than {LARGEST_SELECTOR} bytes, which no request to a metrics API can have"


def problem_of_target(selector: str) -> str:
    """Return why the selector of the scaled object cannot be used, "" if it can."""
    return f"the selector of the target's scale has {_WHY}" if len(selector) > LARGEST_SELECTOR else ""


def shortened(selector: str) -> str:
    """Return a selector as text for a condition, which is stored in each autoscaler."""
    return selector if len(selector) <= LONGEST_SHOWN else f"{selector[:LONGEST_SHOWN]}..."


def check_metric(metric: autoscaling_v2.MetricSpec) -> None:
    """Raise MetricsError for a metric whose own selector is too large."""
    source = metric.pods or metric.object or metric.external
    if source is None or source.metric is None or source.metric.selector is None:
        return
    size = 0
    for text in _texts(source.metric.selector):
        size += len(text) + 1
        if size > LARGEST_SELECTOR:
            raise MetricsError(f"the metric's selector has {_WHY}")


def _texts(selector: meta_v1.LabelSelector) -> Iterator[str]:
    for key, value in selector.match_labels.items():
        yield key
        yield value
    for expression in selector.match_expressions:
        yield expression.key
        yield from expression.values
