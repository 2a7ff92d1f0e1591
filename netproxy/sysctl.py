"""Kernel settings under /proc/sys, of the network namespace this process runs in."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from kube.process import CommandError, run
from netproxy.config import ConntrackConfig

log = logging.getLogger(__name__)
ROOT = Path("/proc/sys")


def read(name: str, root: Path = ROOT) -> str | None:
    """Return a setting ("net/ipv4/ip_forward"), or None where the kernel has none of that name."""
    try:
        return (root / name).read_text().strip()
    except OSError:
        return None


def ensure(name: str, value: str, root: Path = ROOT) -> bool:
    """Set a setting unless it is so already; return whether it is so now, and log where it cannot be."""
    if read(name, root) == value:
        return True
    try:
        (root / name).write_text(value)
    except OSError as error:
        log.warning("sysctl %s cannot be set to %s: %s", name.replace("/", "."), value, error.strerror)
        return False
    return True


async def prepare_forwarding(families: tuple[int, ...]) -> None:
    """Let the node forward, and let iptables see what crosses a bridge.

    Without the latter an answer from a pod to a pod on the same bridge is not translated back and is refused.
    """
    if 4 in families:
        ensure("net/ipv4/ip_forward", "1")
    if 6 in families:
        ensure("net/ipv6/conf/all/forwarding", "1")
    if read("net/bridge/bridge-nf-call-iptables") is None:
        try:
            await run(["modprobe", "br_netfilter"], timeout=20)
        except CommandError as error:
            log.warning("bridged pod traffic will not pass the Service rules: %s", error)
            return
    for family, name in ((4, "iptables"), (6, "ip6tables")):
        if family in families:
            ensure(f"net/bridge/bridge-nf-call-{name}", "1")


def apply_conntrack(config: ConntrackConfig, cpus: int | None = None) -> None:
    """Raise connection tracking's limits to what the configuration asks for; never lower the table's size.

    In a network namespace other than the host's some are read-only: that is logged and no error.
    """
    wanted = max(config.max_per_core * (cpus or os.cpu_count() or 1), config.min) if config.max_per_core else 0
    prefix = "net/netfilter/nf_conntrack_"
    current = read(prefix + "max")
    if wanted and current is not None and int(current) < wanted:
        ensure(prefix + "max", str(wanted))
    for name, value in (
        ("tcp_timeout_established", config.tcp_established_timeout),
        ("tcp_timeout_close_wait", config.tcp_close_wait_timeout),
        ("udp_timeout", config.udp_timeout),
        ("udp_timeout_stream", config.udp_stream_timeout),
    ):
        if value and read(prefix + name) is not None:
            ensure(prefix + name, str(int(value)))
    if config.tcp_be_liberal:
        ensure(prefix + "tcp_be_liberal", "1")


def adjust_oom_score(score: int, file: Path = Path("/proc/self/oom_score_adj")) -> None:
    """Have the kernel spare this process (-1000) or end it first (1000) when memory runs out; log where it cannot."""
    try:
        file.write_text(str(score))
    except OSError as error:
        log.warning("oomScoreAdj cannot be set to %d: %s", score, error.strerror)
