"""Snapshots as Prometheus texts: /metrics/resource, /metrics/cadvisor and /metrics/probes.

Names and labels are those that dashboards and the metrics server expect of a kubelet (and of the cAdvisor in it).
"""

from __future__ import annotations

from collections.abc import Callable

from agent.probes.counts import BUCKETS, ProbeCounts
from agent.usage.exposition import Sample, Text
from agent.usage.model import ContainerUse, Memory, Snapshot


def resource(snapshot: Snapshot | None) -> str:
    """Write /metrics/resource, what the metrics server reads; None when there were no figures to be had."""
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


def cadvisor(snapshot: Snapshot, cores: int) -> str:
    """Write /metrics/cadvisor: containers by ID, image and name, pods and their interfaces, the machine as "/"."""
    text = Text()
    containers = []
    node = snapshot.node
    wholes = [(_slice("/"), node.cpu, node.memory)]
    wholes += [
        (_slice(f"/kubepods/pod{pod.uid}", pod.namespace, pod.name), pod.cpu, pod.memory)
        for pod in snapshot.pods
        if pod.cpu is not None and pod.memory is not None
    ]
    for pod in snapshot.pods:
        for c in pod.containers:
            labels = {
                "container": c.name,
                "id": f"/kubepods/pod{pod.uid}/{c.container_id}",
                "image": c.image,
                "name": c.container_id,
                "namespace": pod.namespace,
                "pod": pod.name,
            }
            containers.append((labels, c))
    memory = snapshot.node.memory
    gauges: tuple[tuple[str, str, Callable[[ContainerUse], float]], ...] = (
        ("container_memory_usage_bytes", "Current memory usage in bytes", lambda c: c.memory.usage),
        ("container_memory_working_set_bytes", "Current working set in bytes", lambda c: c.memory.working_set),
        ("container_memory_rss", "Size of RSS in bytes", lambda c: c.memory.rss),
        ("container_spec_memory_limit_bytes", "Memory limit for the container", lambda c: c.memory_limit),
        ("container_fs_usage_bytes", "Bytes the container uses on its file system", lambda c: c.rootfs_used),
        ("container_start_time_seconds", "Start time of the container since unix epoch", lambda c: c.started_at),
    )
    text.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds",
        [({"cpu": "total", **labels}, c.cpu.total / 1e9, c.cpu.time) for labels, c in containers]
        + [({"cpu": "total", **labels}, cpu.total / 1e9, cpu.time) for labels, cpu, _ in wholes],
    )
    of_wholes: dict[str, Callable[[Memory], float]] = {
        "container_memory_usage_bytes": lambda m: m.usage,
        "container_memory_working_set_bytes": lambda m: m.working_set,
        "container_memory_rss": lambda m: m.rss,
    }
    for name, help, read in gauges:
        gauged: list[Sample] = [(labels, read(c), c.memory.time) for labels, c in containers]
        if name in of_wholes:
            gauged += [(labels, of_wholes[name](m), m.time) for labels, _, m in wholes]
        text.family(name, "gauge", help, gauged)
    for direction, word in (("rx", "receive"), ("tx", "transmit")):
        for what in ("bytes", "errors"):
            samples: list[Sample] = [
                (
                    {"interface": one.name, **_slice(f"/kubepods/pod{pod.uid}", pod.namespace, pod.name)},
                    getattr(one, f"{direction}_{what}"),
                    pod.cpu.time if pod.cpu else 0.0,
                )
                for pod in snapshot.pods
                for one in pod.interfaces
            ]
            text.family(f"container_network_{word}_{what}_total", "counter", f"Cumulative count of {what}", samples)
    text.family("machine_cpu_cores", "gauge", "Number of logical CPU cores", [({}, cores, 0.0)])
    total = memory.working_set + (memory.available or 0)
    text.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine", [({}, total, 0.0)])
    return str(text)


def probes(counts: ProbeCounts) -> str:
    """Write /metrics/probes: how often the probes of running containers were made, what they said, how long they took."""
    text = Text()
    totals: list[Sample] = []
    buckets: list[Sample] = []
    sums: list[Sample] = []
    numbers: list[Sample] = []
    for (namespace, pod, uid, container, kind), count in counts:
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


def _slice(id: str, namespace: str = "", pod: str = "") -> dict[str, str]:
    """Return the labels of a cgroup that is no container's."""
    return {"container": "", "id": id, "image": "", "name": "", "namespace": namespace, "pod": pod}
