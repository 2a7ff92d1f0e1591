"""The part of /metrics about current state: calls to the runtime, pods and containers, the last shutdown, the process."""

from __future__ import annotations

import os
import resource
from collections import Counter
from itertools import accumulate
from pathlib import Path
from platform import machine as machine_name

from agent.interfaces import Pods
from agent.metrics.exposition import Sample, Text
from agent.node.status import KUBELET_VERSION
from agent.status.phase import ENDED_PHASES
from agent.usage.machine import boot_time
from agent.usage.operations import BUCKETS, Operations


def text(operations: Operations, shutdown: tuple[float, float]) -> str:
    """Write the metrics; `shutdown`: times of the last graceful shutdown's start and end, 0 if there was none."""
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
    for name, seconds in zip(("start", "end"), shutdown, strict=True):
        text.family(
            f"kubelet_graceful_shutdown_{name}_time_seconds",
            "gauge",
            f"Last graceful shutdown {name} time since unix epoch in seconds",
            [({}, seconds, 0.0)],
        )
    return str(text)


def state(pods: Pods, node_name: str) -> str:
    """Write how many pods and containers there are, of which kind and in which state."""
    text = Text()
    views = pods.views()
    states = Counter(record.state.value for view in views for record in view.containers)
    running = sum(1 for view in views if view.sandbox is not None and view.sandbox.ready)
    static = [view.static for view in views]
    ended = [view.pod.status.phase in ENDED_PHASES for view in views]
    text.family(
        "kubelet_node_name", "gauge", "The node's name. The count is always 1.", [({"node": node_name}, 1, 0.0)]
    )
    text.family("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox", [({}, running, 0.0)])
    text.family(
        "kubelet_running_containers",
        "gauge",
        "Number of containers currently running",
        [({"container_state": state}, count, 0.0) for state, count in sorted(states.items())],
    )
    for name, help, counted in (
        ("desired_pods", "The number of pods the kubelet is being instructed to run.", [True] * len(views)),
        ("active_pods", "The number of pods the kubelet considers active.", [not over for over in ended]),
    ):
        kinds = Counter(kind for kind, counts in zip(static, counted, strict=True) if counts)
        found: list[Sample] = [({"static": ("", "true")[kind]}, kinds[kind], 0.0) for kind in (False, True)]
        help += " static is true if the pod is not from the apiserver."
        text.family(f"kubelet_{name}", "gauge", help, found)
    mirrors = sum(static)
    text.family(
        "kubelet_mirror_pods",
        "gauge",
        "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
        [({}, mirrors, 0.0)],
    )
    lives = Counter(
        ("terminated" if over else "terminating" if view.terminating else "sync", ("", "true")[kind])
        for view, over, kind in zip(views, ended, static, strict=True)
    )
    text.family(
        "kubelet_working_pods",
        "gauge",
        "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, "
        "orphaned, or runtime only (also orphaned), and whether the pod is static.",
        [
            ({"config": "desired", "lifecycle": life, "static": kind}, lives[life, kind], 0.0)
            for life in ("sync", "terminated", "terminating")
            for kind in ("", "true")
        ],
    )
    ephemeral = sum(len(view.pod.spec.ephemeral_containers) for view in views)
    text.family(
        "kubelet_managed_ephemeral_containers",
        "gauge",
        "Current number of ephemeral containers in pods managed by this kubelet.",
        [({}, ephemeral, 0.0)],
    )
    return str(text)


def process() -> str:
    """Write the process metrics of every Prometheus client, and the build info. Blocks briefly."""
    text = Text()
    times, pages = os.times(), Path("/proc/self/statm").read_text().split()
    page = os.sysconf("SC_PAGE_SIZE")
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    gauges: tuple[tuple[str, str, float], ...] = (
        ("max_fds", "Maximum number of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("open_fds", "Number of open file descriptors.", len(os.listdir("/proc/self/fd"))),
        ("resident_memory_bytes", "Resident memory size in bytes.", int(pages[1]) * page),
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", boot_time() + began),
        ("virtual_memory_bytes", "Virtual memory size in bytes.", int(pages[0]) * page),
    )
    spent = "Total user and system CPU time spent in seconds."
    text.family("process_cpu_seconds_total", "counter", spent, [({}, times.user + times.system, 0.0)])
    for name, help, value in gauges:
        text.family(f"process_{name}", "gauge", help, [({}, value, 0.0)])
    major, minor = KUBELET_VERSION.removeprefix("v").split(".")[:2]
    labels = {"git_version": KUBELET_VERSION, "major": major, "minor": minor, "platform": f"linux/{machine_name()}"}
    text.family(
        "kubernetes_build_info", "gauge", "A metric with a constant '1' value labeled by build.", [(labels, 1, 0.0)]
    )
    return str(text)
