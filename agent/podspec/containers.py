"""Builds a container's ContainerConfig, with the labels and annotations that a restarted agent reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agent import runtime_records
from agent.cgroups import qos, swap
from agent.lifecycle import container_hash
from agent.list_budget import CONTAINER_BYTES, fitting
from agent.managers.run_options import RunOptions
from agent.podspec import environment
from agent.podspec.sandbox import NOT_RESTARTED, identity_labels
from agent.podspec.security import AnyContainer
from cri.messages import (
    CDIDevice,
    ContainerConfig,
    ContainerMetadata,
    HugepageLimit,
    ImageSpec,
    KeyValue,
    LinuxContainerConfig,
    LinuxContainerResources,
    LinuxContainerSecurityContext,
    Mount,
    Signal,
)
from kube.api import core_v1
from kube.quantity import MOST, milli, value

DEFAULT_MESSAGE_PATH = "/dev/termination-log"
_PATH_MAX, _PATH_USUAL = 4096, 256
"""The kernel's limit: a container whose message has a longer path cannot start; and the length up to which a path is an
annotation however long the runtime's list is."""

_OWN_PREFIXES = ("io.kubernetes.container.", "io.kubernetes.pod.")
"""The agent's own annotations, which it reads back from the runtime: nobody else sets them, also if it has not."""


def container_config(
    pod: core_v1.Pod,
    container: AnyContainer,
    restart_count: int,
    *,
    image_id: str,
    env: Mapping[str, str],
    mounts: Sequence[Mount],
    security: LinuxContainerSecurityContext,
    resources: LinuxContainerResources,
    share: int = CONTAINER_BYTES,
) -> ContainerConfig:
    """Return what CreateContainer is given; command and arguments see the environment.

    Annotations that the agent does not read are passed where they fit into `share` bytes: the runtime lists them.
    """
    config = ContainerConfig(
        metadata=ContainerMetadata(name=container.name, attempt=restart_count),
        image=ImageSpec(image=image_id, user_specified_image=container.image or ""),
        command=environment.expand_all(container.command, env),
        args=environment.expand_all(container.args, env),
        working_dir=container.working_dir or "",
        envs=[KeyValue(key=key, value=text) for key, text in env.items()],
        mounts=mounts,
        labels={**identity_labels(pod), **NOT_RESTARTED, runtime_records.CONTAINER_NAME: container.name},
        annotations=_annotations(pod, container, restart_count, share),
        log_path=log_path(container.name, restart_count),
        stdin=bool(container.stdin),
        stdin_once=bool(container.stdin_once),
        tty=bool(container.tty),
        linux=LinuxContainerConfig(resources=resources, security_context=security),
    )
    stop_signal = container.lifecycle.stop_signal if container.lifecycle else None
    if stop_signal:
        config.stop_signal = Signal.Value(  # type: ignore[assignment]
            stop_signal.replace("+", "PLUS").replace("-", "MINUS")
        )
    return config


def add_run_options(config: ContainerConfig, run_options: RunOptions) -> None:
    """Add what the node's managers give the container; its environment is in the configuration already."""
    config.mounts.extend(run_options.mounts)
    config.devices.extend(run_options.devices)
    config.annotations.update(
        {key: text for key, text in run_options.annotations.items() if not key.startswith(_OWN_PREFIXES)}
    )
    config.CDI_devices.extend(CDIDevice(name=name) for name in run_options.cdi_devices)
    config.linux.resources.cpuset_cpus = run_options.cpus
    config.linux.resources.cpuset_mems = run_options.mems


def log_path(name: str, restart_count: int) -> str:
    """Return the container's log file below the pod's log directory."""
    return f"{name}/{restart_count}.log"


def _annotations(pod: core_v1.Pod, container: AnyContainer, restart_count: int, share: int) -> dict[str, str]:
    path = container.termination_message_path or DEFAULT_MESSAGE_PATH
    result = {
        runtime_records.HASH: container_hash(container),
        runtime_records.RESTART_COUNT: str(restart_count),
        runtime_records.MESSAGE_POLICY: container.termination_message_policy or "File",
    }
    optional: dict[str, str] = {}
    if len(path) < _PATH_MAX:
        (result if len(path) <= _PATH_USUAL else optional)[runtime_records.MESSAGE_PATH] = path
    if pod.metadata.deletion_grace_period_seconds is not None:
        result[runtime_records.POD_DELETION_GRACE] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        result[runtime_records.POD_GRACE] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        optional[runtime_records.PRE_STOP] = msgspec.json.encode(container.lifecycle.pre_stop).decode()
    if container.ports:
        optional[runtime_records.PORTS] = msgspec.json.encode(container.ports).decode()
    return {**result, **fitting(optional, share)[0]}


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """Inputs of containers' resources from the node and its settings; sizes in bytes."""

    memory_capacity: int
    swap_capacity: int = 0
    swap_behavior: str = swap.NO_SWAP
    cfs_quota: bool = True
    period_us: int = 100_000
    cgroup_v2: bool = False
    swap_controller: bool = False
    """cgroup v2, and its memory controller knows swap."""
    single_process_oom_kill: bool = False
    huge_page_sizes: tuple[str, ...] = ()
    """As 2Mi."""


def container_resources(
    pod: core_v1.Pod, container: AnyContainer, rules: ResourceRules, *, static: bool, exclusive: bool = False
) -> LinuxContainerResources:
    """Return the container's own cgroup limits and its OOM score adjustment.

    `static`: the pod's source is a manifest of this machine. `exclusive`: the container has processors of its own, on
    which no quota is to slow it.
    """
    requests, limits = qos.requests(container.resources), dict(qos.limits(container.resources))
    whole = pod.spec.resources.limits if pod.spec.resources is not None else {}
    for name in ("cpu", "memory"):
        if name in whole:
            limits.setdefault(name, whole[name])  # a container without a limit may use the pod's
    resources = LinuxContainerResources(cpu_shares=qos.cpu_shares(milli(requests.get("cpu", 0))))
    quota = qos.cpu_quota(milli(limits.get("cpu", 0)), rules.period_us) if rules.cfs_quota else 0
    if quota:
        resources.cpu_quota, resources.cpu_period = -1 if exclusive else quota, rules.period_us
    memory = value(limits.get("memory", 0))
    if memory:
        resources.memory_limit_in_bytes = memory
    scored = container if isinstance(container, core_v1.Container) else core_v1.Container(name=container.name)
    resources.oom_score_adj = qos.oom_score_adj(pod, scored, rules.memory_capacity)
    for size in rules.huge_page_sizes:
        # Resources that were not requested are not available.
        amount = value(limits.get(f"hugepages-{size}", 0))
        resources.hugepage_limits.append(HugepageLimit(page_size=size.removesuffix("i") + "B", limit=amount))
    if rules.swap_controller:
        extra = 0
        if isinstance(container, core_v1.Container):
            amounts = rules.memory_capacity, rules.swap_capacity
            extra = swap.limit(pod, container, rules.swap_behavior, *amounts, static=static)
        resources.unified["memory.swap.max"] = str(extra)
        if memory:
            resources.memory_swap_limit_in_bytes = min(memory + extra, MOST)
    if rules.cgroup_v2 and not rules.single_process_oom_kill:
        # One process of a container out of memory takes the others with it.
        resources.unified["memory.oom.group"] = "1"
    return resources
