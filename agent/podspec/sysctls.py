"""Allows a pod's sysctls: safe namespaced ones, and those of the node's allow list."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1

# Namespaced sysctls that cannot harm other pods (pkg/kubelet/sysctl/safe_sysctls.go).
_SAFE = frozenset(
    """kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range
    net.ipv4.ip_unprivileged_port_start net.ipv4.ip_local_reserved_ports net.ipv4.tcp_keepalive_time
    net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_rmem
    net.ipv4.tcp_wmem""".split()
)


def forbidden_sysctl(pod: core_v1.Pod, allowed: Iterable[str]) -> str:
    """Return the first setting that the pod may not have, "" where it may have all; `allowed` are names and name*."""
    context = pod.spec.security_context
    patterns = tuple(allowed)
    for sysctl in context.sysctls if context else ():
        name = sysctl.name.replace("/", ".")
        if name not in _SAFE and not any(_matches(name, pattern) for pattern in patterns):
            return sysctl.name
    return ""


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
