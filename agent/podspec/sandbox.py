"""Builds a pod's PodSandboxConfig, from which the runtime creates namespaces, network and cgroup parent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent import runtime_records
from agent.cgroups import qos
from agent.lifecycle import is_sidecar
from agent.list_budget import SANDBOX_BYTES, fitting
from agent.podspec import hosts
from agent.podspec.dns import Resolver
from agent.podspec.security import sandbox_context
from cri.messages import (
    DNSConfig,
    IDMapping,
    LinuxContainerResources,
    LinuxPodSandboxConfig,
    PodSandboxConfig,
    PodSandboxMetadata,
    PortMapping,
    Protocol,
)
from kube.api import core_v1

_PROTOCOLS = {"TCP": Protocol.TCP, "UDP": Protocol.UDP, "SCTP": Protocol.SCTP}


NOT_RESTARTED = {"containerd.io/restart.status": ""}
"""Label that wins over one of the image or the pod: containerd's restart monitor does nothing for it.

Containerd copies labels of images to containers. Those of its restart monitor start ended containers again, and before
1.7.33, 2.0.10, 2.1.9, 2.2.5 and 2.3.2 run commands as root (CVE-2026-53488).
"""


def sandbox_config(
    pod: core_v1.Pod,
    attempt: int,
    *,
    resolver: Resolver,
    cluster_domain: str,
    cgroup_parent: str,
    logs_root: Path,
    cfs_quota: bool = True,
    period_us: int = 100_000,
    ids: Sequence[IDMapping] = (),
    share: int = SANDBOX_BYTES,
) -> PodSandboxConfig:
    """Return what RunPodSandbox and every CreateContainer of the pod are given.

    Of the pod's labels and annotations those are passed that fit into `share` bytes, labels first: the runtime lists them.
    """
    metadata = pod.metadata
    identity = {**identity_labels(pod), **NOT_RESTARTED}
    labels, left = fitting({key: text for key, text in metadata.labels.items() if key not in identity}, share)
    annotations, _ = fitting(metadata.annotations, left)
    config = PodSandboxConfig(
        metadata=PodSandboxMetadata(
            name=metadata.name or "", namespace=metadata.namespace or "", uid=metadata.uid or "", attempt=attempt
        ),
        labels={**labels, **identity},
        annotations=annotations,
        log_directory=str(log_directory(logs_root, pod)),
        dns_config=DNSConfig(servers=resolver.servers, searches=resolver.searches, options=resolver.options),
        port_mappings=_ports(pod),
        linux=LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=sandbox_context(pod, ids),
            sysctls=_sysctls(pod),
            resources=pod_resources(pod, cfs_quota=cfs_quota, period_us=period_us),
        ),
    )
    if not pod.spec.host_network:
        config.hostname = hosts.sandbox_hostname(pod, cluster_domain)
    return config


def identity_labels(pod: core_v1.Pod) -> dict[str, str]:
    """Return the labels by which the agent finds the pod in the runtime again."""
    metadata = pod.metadata
    return {
        runtime_records.POD_NAME: metadata.name or "",
        runtime_records.POD_NAMESPACE: metadata.namespace or "",
        runtime_records.POD_UID: metadata.uid or "",
    }


def metadata_warning(pod: core_v1.Pod, config: PodSandboxConfig) -> str:
    """Return the message of the event about labels and annotations that the configuration had to leave out."""
    labels = len(pod.metadata.labels.keys() - config.labels.keys())
    annotations = len(pod.metadata.annotations) - len(config.annotations)
    if not labels and not annotations:
        return ""
    return (
        f"{labels} labels and {annotations} annotations of the pod are not passed to the container runtime: they are too "
        f"large for its list of pods. The pod runs, but what reads them from the runtime does not see them."
    )


def log_directory(root: Path, pod: core_v1.Pod) -> Path:
    """Return the folder of the pod's logs: <namespace>_<name>_<uid>."""
    metadata = pod.metadata
    return root / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"


def _ports(pod: core_v1.Pod) -> list[PortMapping]:
    if pod.spec.host_network:
        return []
    return [
        PortMapping(
            protocol=_PROTOCOLS[port.protocol or "TCP"],
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip or "",
        )
        for container in (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers)
        for port in container.ports
        if port.host_port
    ]


def _sysctls(pod: core_v1.Pod) -> dict[str, str]:
    context = pod.spec.security_context
    return {_dotted(s.name): s.value for s in context.sysctls} if context else {}


def _dotted(name: str) -> str:
    """Turn net/ipv4/conf/eth0.1 into the form with dots, where a dot within a part is written as a slash."""
    first = next((c for c in name if c in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def pod_resources(pod: core_v1.Pod, *, cfs_quota: bool, period_us: int) -> LinuxContainerResources:
    """Return the resources of the pod as a whole, which the runtime passes to its plugins."""
    resources = LinuxContainerResources(cpu_shares=qos.cpu_shares(qos.pod_request(pod, "cpu")))
    quota = qos.cpu_quota(qos.pod_limit(pod, "cpu"), period_us) if cfs_quota else 0
    if quota:
        resources.cpu_quota, resources.cpu_period = quota, period_us
    memory = qos.pod_limit(pod, "memory")
    if memory:
        resources.memory_limit_in_bytes = memory
    return resources
