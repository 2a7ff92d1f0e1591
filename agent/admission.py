"""Whether this node takes a pod that was bound to it: the last check, after the scheduler's (kubelet/lifecycle/predicate.go).

Two schedulers, or a user who writes nodeName, can put more on a node than it has. Such a pod fails with upstream's reason
and words, so that its controller makes another one elsewhere. Pure.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable

from agent import qos
from agent.config import AgentConfig
from agent.lifecycle import End
from agent.toolbox import NodeState
from kube.api import core_v1
from kube.quantity import milli, value

_FIXED = ("cpu", "memory", "ephemeral-storage")


def admit(pod: core_v1.Pod, others: Iterable[core_v1.Pod], node: NodeState, config: AgentConfig) -> End | None:
    """Return None where the pod may run, else how it fails."""
    others = list(others)
    return (
        _os(pod)
        or _too_many(others, config)
        or _resources(pod, others, node)
        or _ports(pod, others)
        or _sysctls(pod, config)
    )


def _reject(reason: str, message: str) -> End:
    return End("Failed", reason, f"Pod was rejected: {message}")


def _os(pod: core_v1.Pod) -> End | None:
    wanted = pod.spec.node_selector.get("kubernetes.io/os")
    if wanted not in (None, "linux"):
        return _reject(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name != platform.system().lower():
        return _reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _too_many(others: list[core_v1.Pod], config: AgentConfig) -> End | None:
    if len(others) + 1 > config.max_pods:
        message = (
            f"Node didn't have enough resource: pods, requested: 1, used: {len(others)}, capacity: {config.max_pods}"
        )
        return _reject("OutOfpods", message)
    return None


def _resources(pod: core_v1.Pod, others: list[core_v1.Pod], node: NodeState) -> End | None:
    names = set(_FIXED)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        names |= qos.requests(container.resources).keys()
    for name in sorted(names):
        requested = qos.pod_request(pod, name)
        if not requested or (name not in node.allocatable and name in _FIXED):
            continue
        quantity = node.allocatable.get(name, 0)
        capacity = milli(quantity) if name == "cpu" else value(quantity)
        used = sum(qos.pod_request(other, name) for other in others)
        if used + requested > capacity:
            message = (
                f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            )
            return _reject(f"OutOf{name}", message)
    return None


def _ports(pod: core_v1.Pod, others: list[core_v1.Pod]) -> End | None:
    wanted = _host_ports(pod)
    for other in others:
        for address, protocol, port in wanted:
            for taken_address, taken_protocol, taken_port in _host_ports(other):
                same = port == taken_port and protocol == taken_protocol
                if same and (address == taken_address or "0.0.0.0" in (address, taken_address)):
                    return _reject(
                        "NodePorts",
                        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
                    )
    return None


def _host_ports(pod: core_v1.Pod) -> list[tuple[str, str, int]]:
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for port in container.ports
        if port.host_port
    ]


# Namespaced sysctls that cannot harm other pods (pkg/kubelet/sysctl/safe_sysctls.go).
_SAFE = frozenset(
    """kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range
    net.ipv4.ip_unprivileged_port_start net.ipv4.ip_local_reserved_ports net.ipv4.tcp_keepalive_time
    net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_rmem
    net.ipv4.tcp_wmem""".split()
)


def _sysctls(pod: core_v1.Pod, config: AgentConfig) -> End | None:
    context = pod.spec.security_context
    for sysctl in context.sysctls if context else ():
        name = sysctl.name.replace("/", ".")
        allowed = name in _SAFE or any(
            name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
            for pattern in config.allowed_unsafe_sysctls
        )
        if not allowed:
            return End("Failed", "SysctlForbidden", f'forbidden sysctl: "{sysctl.name}" not allowlisted')
    return None
