"""The part of /metrics that tells what the agent did: calls to the runtime, pods and containers started, the last shutdown."""

from __future__ import annotations

from itertools import accumulate

from agent.usage.metrics import Sample, Text
from agent.usage.operations import BUCKETS, Operations
from kube.clock import parse_time


def text(operations: Operations, shutdown: tuple[str, str]) -> str:
    """Write the metrics; `shutdown` is when the last graceful shutdown began and ended, "" where there was none."""
    text = Text()
    found = sorted(operations.by_type.items())
    text.family(
        "kubelet_runtime_operations_total",
        "counter",
        "Cumulative number of runtime operations by operation type.",
        [({"operation_type": name}, one.count, 0.0) for name, one in found],
    )
    text.family(
        "kubelet_runtime_operations_errors_total",
        "counter",
        "Cumulative number of runtime operation errors by operation type.",
        [({"operation_type": name}, one.errors, 0.0) for name, one in found if one.errors],
    )
    buckets: list[Sample] = []
    bounds = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]
    for name, one in found:
        for bound, number in zip(bounds, accumulate(one.buckets), strict=True):
            buckets.append(({"operation_type": name, "le": bound}, number, 0.0))
    text.histogram(
        "kubelet_runtime_operations_duration_seconds",
        "Duration in seconds of runtime operations. Broken down by operation type.",
        buckets,
        [({"operation_type": name}, one.seconds, 0.0) for name, one in found],
        [({"operation_type": name}, one.count, 0.0) for name, one in found],
    )
    _started(text, operations, "run_podsandbox", "kubelet_started_pods", "pods")
    _started(text, operations, "start_container", "kubelet_started_containers", "containers")
    for name, moment, what in zip(("start", "end"), shutdown, ("start", "end"), strict=True):
        seconds = parse_time(moment).timestamp() if moment else 0.0
        text.family(
            f"kubelet_graceful_shutdown_{name}_time_seconds",
            "gauge",
            f"Last graceful shutdown {what} time since unix epoch in seconds",
            [({}, seconds, 0.0)],
        )
    return str(text)


def _started(text: Text, operations: Operations, operation: str, name: str, what: str) -> None:
    count = operations.by_type[operation].count if operation in operations.by_type else 0
    text.family(f"{name}_total", "counter", f"Cumulative number of {what} started", [({}, count, 0.0)])
    failures = [
        ({"code": code}, float(n), 0.0) for (kind, code), n in sorted(operations.failures.items()) if kind == operation
    ]
    text.family(f"{name}_errors_total", "counter", f"Cumulative number of errors when starting {what}", failures)
