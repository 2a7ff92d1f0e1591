"""/metrics/cadvisor: the machine, the cgroups of all pods, pods, sandboxes and containers under cAdvisor's names and labels.

CPU and memory usage come from the runtime, as everywhere; all else is read from the cgroups with each request. A pod's network
is that of its sandbox, whose first process shows every interface. cAdvisor's metrics that need a netlink socket (states of
tasks, load) are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.cgroups.tree import Cgroups
from agent.interfaces import PodView
from agent.metrics.exposition import Sample, Text
from agent.node.machine import Machine
from agent.usage import cgroup_details
from agent.usage.cgroup_details import Details
from agent.usage.model import CPU, Memory, PodUse, Snapshot

_NETWORK = tuple(
    f"container_network_{way}_{what}_total"
    for way in ("receive", "transmit")
    for what in ("bytes", "packets", "errors", "packets_dropped")
)
_FAMILIES: dict[str, tuple[str, str]] = {
    "container_cpu_user_seconds_total": ("counter", "Cumulative user cpu time consumed in seconds."),
    "container_cpu_system_seconds_total": ("counter", "Cumulative system cpu time consumed in seconds."),
    "container_cpu_cfs_periods_total": ("counter", "Number of elapsed enforcement period intervals."),
    "container_cpu_cfs_throttled_periods_total": ("counter", "Number of throttled period intervals."),
    "container_cpu_cfs_throttled_seconds_total": ("counter", "Total time duration the container has been throttled."),
    "container_memory_cache": ("gauge", "Number of bytes of page cache memory."),
    "container_memory_failcnt": ("counter", "Number of memory usage hits limits"),
    "container_memory_kernel_usage": ("gauge", "Size of kernel memory allocated in bytes."),
    "container_memory_mapped_file": ("gauge", "Size of memory mapped files in bytes."),
    "container_memory_max_usage_bytes": ("gauge", "Maximum memory usage recorded in bytes"),
    "container_memory_swap": ("gauge", "Container swap usage in bytes."),
    "container_oom_events_total": ("counter", "Count of out of memory events observed for the container"),
    "container_processes": ("gauge", "Number of processes running inside the container."),
    "container_file_descriptors": ("gauge", "Number of open file descriptors for the container."),
    "container_sockets": ("gauge", "Number of open sockets for the container."),
    "container_threads": ("gauge", "Number of threads running inside the container"),
    "container_threads_max": (
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
    ),
    "container_spec_cpu_period": ("gauge", "CPU period of the container."),
    "container_spec_cpu_quota": ("gauge", "CPU quota of the container."),
    "container_spec_cpu_shares": ("gauge", "CPU share of the container."),
    "container_spec_memory_limit_bytes": ("gauge", "Memory limit for the container."),
    "container_spec_memory_reservation_limit_bytes": ("gauge", "Memory reservation limit for the container."),
    "container_spec_memory_swap_limit_bytes": ("gauge", "Memory swap limit for the container."),
}
_DEVICES = {
    "container_fs_reads_bytes_total": "Cumulative count of bytes read",
    "container_fs_writes_bytes_total": "Cumulative count of bytes written",
    "container_fs_reads_total": "Cumulative count of reads completed",
    "container_fs_writes_total": "Cumulative count of writes completed",
}


@dataclass(slots=True)
class Group:
    """One series' owner: its labels, and what is known of it."""

    labels: dict[str, str]
    cpu: CPU | None = None
    memory: Memory | None = None
    started_at: float = 0.0
    details: Details = field(default_factory=Details)
    written: int | None = None
    """Bytes in a container's writable layer."""
    network: Mapping[str, Sequence[int]] = field(default_factory=dict)


def gather(snapshot: Snapshot, views: Mapping[str, PodView], cgroups: Cgroups | None) -> list[Group]:
    """Gather the metrics of all groups; `views` by UID. Blocks for about a millisecond a container."""
    node = snapshot.node
    groups = [Group(_labels("/"), node.cpu, node.memory, node.started_at, _details(cgroups, ""))]
    if cgroups is not None and node.pods_cpu is not None:
        path = cgroups.kubepods()
        groups.append(Group(_labels(f"/{path}"), node.pods_cpu, node.pods_memory, 0.0, _details(cgroups, path)))
    for pod in snapshot.pods:
        view = views.get(pod.uid)
        if view is not None:
            groups += _of_pod(pod, view, cgroups)
    return groups


def _of_pod(pod: PodUse, view: PodView, cgroups: Cgroups | None) -> Iterable[Group]:
    path = cgroups.pod_path(view.pod) if cgroups is not None else f"kubepods/pod{pod.uid}"
    names = (pod.namespace, pod.name)
    yield Group(_labels(f"/{path}", *names), pod.cpu, pod.memory, pod.started_at, _details(cgroups, path))
    if view.sandbox is not None and view.sandbox.ready:
        own = _child(cgroups, path, view.sandbox.id)
        sandbox = Group(_labels(f"/{own}", *names, name=view.sandbox.id), details=_details(cgroups, own))
        sandbox.network = _network(sandbox.details, pod)
        yield sandbox
    for one in pod.containers:
        own = _child(cgroups, path, one.container_id)
        labels = _labels(f"/{own}", *names, name=one.container_id, container=one.name, image=one.image)
        yield Group(labels, one.cpu, one.memory, one.started_at, _details(cgroups, own), one.rootfs_used)


def _network(details: Details, pod: PodUse) -> Mapping[str, Sequence[int]]:
    if details.pids and (found := cgroup_details.interfaces(details.pids[0])):
        return found
    return {one.name: (one.rx_bytes, 0, one.rx_errors, 0, one.tx_bytes, 0, one.tx_errors, 0) for one in pod.interfaces}


def _child(cgroups: Cgroups | None, path: str, container_id: str) -> str:
    systemd = path.endswith(".slice")
    return f"{path}/cri-containerd-{container_id}.scope" if systemd else f"{path}/{container_id}"


def _details(cgroups: Cgroups | None, path: str) -> Details:
    return cgroup_details.read(cgroups.fs.mount, path, v2=cgroups.fs.v2) if cgroups is not None else Details()


def _labels(
    id: str, namespace: str = "", pod: str = "", name: str = "", container: str = "", image: str = ""
) -> dict[str, str]:
    return {"container": container, "id": id, "image": image, "name": name, "namespace": namespace, "pod": pod}


def text(groups: Sequence[Group], snapshot: Snapshot, machine: Machine | None, now: float, device: str = "") -> str:
    """Write everything; `now` in epoch seconds, `device`: what the node's own file system lies on."""
    text = Text()
    _usage(text, groups, now)
    for name, (kind, help) in _FAMILIES.items():
        text.present(
            name, kind, help, [(g.labels, g.details.samples[name], 0.0) for g in groups if name in g.details.samples]
        )
    soft = "container_ulimits_soft"
    limits: list[Sample] = [
        ({**g.labels, "ulimit": "max_open_files"}, g.details.samples[soft], 0.0)
        for g in groups
        if soft in g.details.samples
    ]
    text.present(soft, "gauge", "Soft ulimit values for the container root process. Unlimited if -1.", limits)
    for name, help in _DEVICES.items():
        found: list[Sample] = [
            ({**g.labels, "device": device}, samples[name], 0.0)
            for g in groups
            for device, samples in g.details.devices.items()
        ]
        text.present(name, "counter", help, found)
    _filesystems(text, groups, snapshot, device)
    for index, name in enumerate(_NETWORK):
        what = name.removeprefix("container_network_").removesuffix("_total").replace("_", " ")
        text.present(
            name,
            "counter",
            f"Cumulative count of {what}",
            [({**g.labels, "interface": one}, counts[index], 0.0) for g in groups for one, counts in g.network.items()],
        )
    text.present(
        "container_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
        [({}, 0, 0.0)],
    )
    _machine(text, machine)
    return str(text)


def _usage(text: Text, groups: Sequence[Group], now: float) -> None:
    used = [(g.labels, g.cpu, g.memory) for g in groups if g.cpu is not None and g.memory is not None]
    text.present(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        [({**labels, "cpu": "total"}, cpu.total / 1e9, cpu.time) for labels, cpu, _ in used],
    )
    for name, help, figure in (
        (
            "usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            "usage",
        ),
        ("working_set_bytes", "Current working set in bytes.", "working_set"),
        ("rss", "Size of RSS in bytes.", "rss"),
    ):
        found = [(labels, getattr(memory, figure), memory.time) for labels, _, memory in used]
        text.present(f"container_memory_{name}", "gauge", help, found)
    faults: list[Sample] = [
        ({**labels, "failure_type": kind, "scope": "hierarchy"}, count, memory.time)
        for labels, _, memory in used
        for kind, count in (("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults))
    ]
    text.present(
        "container_memory_failures_total", "counter", "Cumulative count of memory allocation failures.", faults
    )
    text.present(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds.",
        [(g.labels, g.started_at, 0.0) for g in groups if g.started_at],
    )
    text.present(
        "container_last_seen",
        "gauge",
        "Last time a container was seen by the exporter",
        [(g.labels, int(now), 0.0) for g in groups],
    )


def _filesystems(text: Text, groups: Sequence[Group], snapshot: Snapshot, device: str) -> None:
    """Write the node's own file system under "/", and what containers have written, which lies on the images' one."""
    node, root = snapshot.node.filesystem, {**_labels("/"), "device": device}
    written: list[Sample] = [({**g.labels, "device": ""}, g.written, 0.0) for g in groups if g.written is not None]
    text.present(
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        [(root, node.used, 0.0), *written],
    )
    for name, help, value in (
        ("limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", node.capacity),
        ("inodes_free", "Number of available Inodes", node.inodes_free),
        ("inodes_total", "Number of Inodes", node.inodes),
    ):
        text.present(f"container_fs_{name}", "gauge", help, [(root, value, 0.0)])


def _machine(text: Text, machine: Machine | None) -> None:
    if machine is None:
        return
    labels = {"boot_id": machine.boot_id, "machine_id": machine.machine_id, "system_uuid": machine.system_uuid}
    cores, sockets = _processors(Path("/proc/cpuinfo").read_text())
    for name, help, value in (
        ("cpu_cores", "Number of logical CPU cores.", os.cpu_count() or 1),
        ("cpu_physical_cores", "Number of physical CPU cores.", cores),
        ("cpu_sockets", "Number of CPU sockets.", sockets),
        ("memory_bytes", "Amount of memory installed on the machine.", machine.memory),
        ("swap_bytes", "Amount of swap memory available on the machine.", machine.swap),
    ):
        text.present(f"machine_{name}", "gauge", help, [(labels, value, 0.0)])
    error = "1 if there was an error while getting machine metrics, 0 otherwise."
    text.present("machine_scrape_error", "gauge", error, [({}, 0, 0.0)])
    version = {
        "cadvisorRevision": "",
        "cadvisorVersion": "",
        "dockerVersion": "",
        "kernelVersion": machine.kernel,
        "osVersion": machine.os_image,
    }
    text.present(
        "cadvisor_version_info", "gauge", "A metric with a constant '1' value labeled by versions.", [(version, 1, 0.0)]
    )


def _processors(cpuinfo: str) -> tuple[int, int]:
    """Count physical cores and sockets in /proc/cpuinfo; without them each processor is a core of one socket."""
    cores, sockets, physical = set(), set(), "0"
    for line in cpuinfo.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "physical id":
            physical = value
            sockets.add(value)
        elif name == "core id":
            cores.add((physical, value))
    return len(cores) or os.cpu_count() or 1, len(sockets) or 1
