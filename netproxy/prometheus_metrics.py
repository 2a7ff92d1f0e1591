"""The parts of prometheus_client that the proxy uses, without its HTTP servers and formats, which take 1 MiB.

The port's answers are written by kube/exposition.py.
"""

from __future__ import annotations

from kube.partial_packages import without_init

without_init("prometheus_client", "values")

from prometheus_client.metrics import Counter, Gauge, Histogram  # noqa: E402 - after the line above
from prometheus_client.metrics_core import Metric  # noqa: E402
from prometheus_client.process_collector import ProcessCollector  # noqa: E402
from prometheus_client.registry import Collector, CollectorRegistry  # noqa: E402

__all__ = ["Collector", "CollectorRegistry", "Counter", "Gauge", "Histogram", "Metric", "ProcessCollector"]
