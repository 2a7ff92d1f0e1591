"""/metrics/resource and /metrics/probes in Prometheus' text format.

Names and labels are those that dashboards and the metrics server expect of a kubelet (and of the cAdvisor in it).
"""

from __future__ import annotations

from agent.metrics.exposition import Sample, Text
from agent.probes.probe_metrics import BUCKETS, ProbeMetrics
from agent.usage.model import Snapshot


def resource(snapshot: Snapshot | None) -> str:
    """Write /metrics/resource, which the metrics server reads; None if the snapshot failed."""
    text = Text()
    if snapshot is not None:
        _resource(text, snapshot)
    failed: list[Sample] = [({}, 1.0 if snapshot is None else 0.0, 0.0)]
    text.family("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise",
                failed)  # fmt: skip
    return str(text)


def _resource(text: Text, snapshot: Snapshot) -> None:
    containers = [
        ({"container": c.name, "namespace": pod.namespace, "pod": pod.name}, c)
        for pod in snapshot.pods
        for c in pod.containers
    ]
    pods = [({"namespace": pod.namespace, "pod": pod.name}, pod) for pod in snapshot.pods]
    node = snapshot.node
    text.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        [(labels, c.cpu.total / 1e9, c.cpu.time) for labels, c in containers],
    )
    text.family(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        [(labels, c.memory.working_set, c.memory.time) for labels, c in containers],
    )
    text.family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
        [(labels, c.started_at, 0.0) for labels, c in containers],
    )
    text.family(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
        [({}, node.cpu.total / 1e9, node.cpu.time)],
    )
    text.family(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
        [({}, node.memory.working_set, node.memory.time)],
    )
    text.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        [(labels, pod.cpu.total / 1e9, pod.cpu.time) for labels, pod in pods if pod.cpu],
    )
    text.family(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
        [(labels, pod.memory.working_set, pod.memory.time) for labels, pod in pods if pod.memory],
    )


def probes(metrics: ProbeMetrics) -> str:
    """Write /metrics/probes: number, results and durations of the probes of running containers."""
    text = Text()
    totals: list[Sample] = []
    buckets: list[Sample] = []
    sums: list[Sample] = []
    numbers: list[Sample] = []
    for (namespace, pod, uid, container, kind), count in metrics:
        labels = {"container": container, "namespace": namespace, "pod": pod}
        for result, number in sorted(count.results.items()):
            shown = {**labels, "pod_uid": uid, "probe_type": kind, "result": result}
            totals.append((shown, number, 0.0))
        timed = {**labels, "probe_type": kind}
        bounds = [(f"{bound:g}", number) for bound, number in zip(BUCKETS, count.durations, strict=True)]
        bounds.append(("+Inf", count.total))
        buckets += [({**timed, "le": bound}, number, 0.0) for bound, number in bounds]
        sums.append((timed, count.seconds, 0.0))
        numbers.append((timed, count.total, 0.0))
    help = "Cumulative number of a liveness, readiness or startup probe for a container by result."
    text.family("prober_probe_total", "counter", help, totals)
    text.histogram("prober_probe_duration_seconds", "Duration in seconds for a probe response.", buckets, sums, numbers)
    return str(text)
