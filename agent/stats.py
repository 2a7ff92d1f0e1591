"""Figures of the node and its containers: the summary API and the Prometheus texts that metrics servers scrape.

Container figures are the runtime's (CRI ListContainerStats); the node's own come from /proc. Nothing is sampled in the
background: a scrape costs one call to the runtime.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent import records
from agent.config import AgentConfig
from agent.container_status import stamp
from agent.machine import available_memory
from agent.node import Node
from agent.pods import PodManager
from cri.errors import CRIError
from cri.messages import ContainerStats
from cri.runtime_service import RuntimeService
from kube.clock import Clock, format_time

_TICKS = os.sysconf("SC_CLK_TCK")


class Stats:
    """Answers /stats/summary and the /metrics paths."""

    def __init__(
        self, config: AgentConfig, runtime: RuntimeService, pods: PodManager, node: Node, clock: Clock
    ) -> None:
        self._config, self._runtime, self._pods, self._node, self._clock = config, runtime, pods, node, clock
        self._began = clock.now()

    async def _containers(self) -> list[ContainerStats]:
        try:
            return await self._runtime.list_container_stats()
        except CRIError:
            return []

    # -- the summary API ----------------------------------------------------------------------------------------------
    async def summary(self, only_cpu_and_memory: bool = False) -> Mapping[str, Any]:
        """Return the Summary of the node and its pods (stats/v1alpha1)."""
        now = format_time(self._clock.now())
        node: dict[str, Any] = {
            "nodeName": self._config.node_name,
            "startTime": format_time(self._began),
            "cpu": {"time": now, "usageCoreNanoSeconds": _node_cpu()},
            "memory": self._node_memory(now),
        }
        if not only_cpu_and_memory:
            disk = os.statvfs(self._config.root_dir)
            node["fs"] = {
                "time": now,
                "availableBytes": disk.f_bavail * disk.f_frsize,
                "capacityBytes": disk.f_blocks * disk.f_frsize,
                "usedBytes": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
                "inodesFree": disk.f_ffree,
                "inodes": disk.f_files,
                "inodesUsed": disk.f_files - disk.f_ffree,
            }
            node["rlimit"] = {"time": now, "maxpid": _pid_limit(), "curproc": _processes()}
        pods: dict[str, dict[str, Any]] = {}
        for stats in await self._containers():
            labels = stats.attributes.labels
            uid = labels.get(records.POD_UID, "")
            view = self._pods.by_uid().get(uid)
            if view is None:
                continue
            pod = pods.setdefault(
                uid,
                {
                    "podRef": {
                        "name": labels[records.POD_NAME],
                        "namespace": labels[records.POD_NAMESPACE],
                        "uid": uid,
                    },
                    "startTime": view.pod.status.start_time,
                    "containers": [],
                },
            )
            record = next((c for c in view.containers if c.id == stats.attributes.id), None)
            container: dict[str, Any] = {
                "name": labels.get(records.CONTAINER_NAME, ""),
                "startTime": stamp(record.started_at) if record else None,
                "cpu": {"time": now, "usageCoreNanoSeconds": stats.cpu.usage_core_nano_seconds.value},
                "memory": {"time": now, "workingSetBytes": stats.memory.working_set_bytes.value},
            }
            if stats.cpu.HasField("usage_nano_cores"):
                container["cpu"]["usageNanoCores"] = stats.cpu.usage_nano_cores.value
            if not only_cpu_and_memory:
                container["rootfs"] = {
                    "time": now,
                    "usedBytes": stats.writable_layer.used_bytes.value,
                    "inodesUsed": stats.writable_layer.inodes_used.value,
                }
            pod["containers"].append(container)
        for pod in pods.values():
            containers = pod["containers"]
            pod["cpu"] = {"time": now, "usageCoreNanoSeconds": _total(containers, "cpu", "usageCoreNanoSeconds")}
            pod["memory"] = {"time": now, "workingSetBytes": _total(containers, "memory", "workingSetBytes")}
        return {"node": node, "pods": list(pods.values())}

    def _node_memory(self, now: str) -> dict[str, Any]:
        available = available_memory()
        used = self._node.machine.memory - available
        return {"time": now, "availableBytes": available, "usageBytes": used, "workingSetBytes": used}

    # -- Prometheus texts ---------------------------------------------------------------------------------------------
    async def resource(self) -> str:
        """Return /metrics/resource, which the resource metrics API is fed from."""
        text = _Text()
        text.counter("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds")
        text.sample("node_cpu_usage_seconds_total", {}, _node_cpu() / 1e9)
        text.gauge("node_memory_working_set_bytes", "Current working set of the node in bytes")
        text.sample("node_memory_working_set_bytes", {}, self._node.machine.memory - available_memory())
        containers = await self._containers()
        text.counter(
            "container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds"
        )
        for stats in containers:
            text.sample(
                "container_cpu_usage_seconds_total", _labels(stats), stats.cpu.usage_core_nano_seconds.value / 1e9
            )
        text.gauge("container_memory_working_set_bytes", "Current working set of the container in bytes")
        for stats in containers:
            text.sample("container_memory_working_set_bytes", _labels(stats), stats.memory.working_set_bytes.value)
        text.gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds")
        for view in self._pods.views():
            for record in view.containers:
                if record.running:
                    metadata = view.pod.metadata
                    labels = {
                        "container": record.name, "namespace": metadata.namespace or "", "pod": metadata.name or ""
                    }  # fmt: skip
                    text.sample("container_start_time_seconds", labels, record.started_at)
        text.gauge("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds")
        sums: dict[tuple[str, str], list[float]] = {}
        for stats in containers:
            labels = _labels(stats)
            entry = sums.setdefault((labels["namespace"], labels["pod"]), [0.0, 0.0])
            entry[0] += stats.cpu.usage_core_nano_seconds.value / 1e9
            entry[1] += stats.memory.working_set_bytes.value
        for (namespace, pod), entry in sums.items():
            text.sample("pod_cpu_usage_seconds_total", {"namespace": namespace, "pod": pod}, entry[0])
        text.gauge("pod_memory_working_set_bytes", "Current working set of the pod in bytes")
        for (namespace, pod), entry in sums.items():
            text.sample("pod_memory_working_set_bytes", {"namespace": namespace, "pod": pod}, entry[1])
        text.gauge("scrape_error", "1 if there was an error while getting container metrics, 0 otherwise")
        text.sample("scrape_error", {}, 0)
        return str(text)

    async def cadvisor(self) -> str:
        """Return /metrics/cadvisor: what the runtime tells, under cAdvisor's names."""
        text = _Text()
        containers = await self._containers()
        text.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.")
        for stats in containers:
            labels = {**_labels(stats), "id": stats.attributes.id, "cpu": "total"}
            text.sample("container_cpu_usage_seconds_total", labels, stats.cpu.usage_core_nano_seconds.value / 1e9)
        text.gauge("container_memory_working_set_bytes", "Current working set in bytes.")
        for stats in containers:
            labels = {**_labels(stats), "id": stats.attributes.id}
            text.sample("container_memory_working_set_bytes", labels, stats.memory.working_set_bytes.value)
        text.gauge("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.")
        for stats in containers:
            labels = {**_labels(stats), "id": stats.attributes.id}
            text.sample("container_fs_usage_bytes", labels, stats.writable_layer.used_bytes.value)
        return str(text)

    async def metrics(self) -> str:
        """Return the agent's own /metrics."""
        views = self._pods.views()
        text = _Text()
        text.gauge("kubelet_node_name", "[STABLE] The node's name. The count is always 1.")
        text.sample("kubelet_node_name", {"node": self._config.node_name}, 1)
        text.gauge("kubelet_running_pods", "[BETA] Number of pods that have a running pod sandbox")
        text.sample("kubelet_running_pods", {}, sum(1 for v in views if v.sandbox is not None and v.sandbox.ready))
        text.gauge("kubelet_running_containers", "[BETA] Number of containers currently running")
        states: dict[str, int] = {}
        for view in views:
            for record in view.containers:
                states[record.state.value] = states.get(record.state.value, 0) + 1
        for state, count in sorted(states.items()):
            text.sample("kubelet_running_containers", {"container_state": state}, count)
        text.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        times = os.times()
        text.sample("process_cpu_seconds_total", {}, times.user + times.system)
        text.gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
        text.sample("process_resident_memory_bytes", {}, _resident())
        return str(text)

    async def probes(self) -> str:
        """Return /metrics/probes: what the probes say now, 1 for good and 0 for bad."""
        text = _Text()
        text.gauge("prober_probe_result", "Current state of the probes by container (1 is success)")
        for uid, view in self._pods.by_uid().items():
            for status in (*view.pod.status.init_container_statuses, *view.pod.status.container_statuses):
                if status.state is None or status.state.running is None:
                    continue
                labels = {
                    "container": status.name,
                    "namespace": view.pod.metadata.namespace or "",
                    "pod": view.pod.metadata.name or "",
                    "pod_uid": uid,
                }
                text.sample("prober_probe_result", {**labels, "probe_type": "Readiness"}, int(status.ready))
                text.sample("prober_probe_result", {**labels, "probe_type": "Startup"}, int(bool(status.started)))
        return str(text)


class _Text:
    """Prometheus' text format."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def counter(self, name: str, help_text: str) -> None:
        self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]

    def gauge(self, name: str, help_text: str) -> None:
        self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]

    def sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        self._lines.append(f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}")

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _labels(stats: ContainerStats) -> dict[str, str]:
    labels = stats.attributes.labels
    return {
        "container": labels.get(records.CONTAINER_NAME, ""),
        "namespace": labels.get(records.POD_NAMESPACE, ""),
        "pod": labels.get(records.POD_NAME, ""),
    }


def _total(containers: Iterable[Mapping[str, Any]], part: str, name: str) -> int:
    return sum(container[part].get(name, 0) for container in containers)


def _node_cpu() -> int:
    """Return the nanoseconds that all processors have worked."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + soft + steal) * 1_000_000_000 // _TICKS


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _pid_limit() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())


def _processes() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
