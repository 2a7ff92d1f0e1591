"""Kernel settings under /proc/sys, of the network namespace this process runs in."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from kube.process import CommandError, run
from netproxy import metrics
from netproxy.config import ConntrackConfig

log = logging.getLogger(__name__)
ROOT = Path("/proc/sys")
BRIDGED = {4: "net/bridge/bridge-nf-call-iptables", 6: "net/bridge/bridge-nf-call-ip6tables"}
"""True if rules for IP packets see bridged frames, by IP family."""


def read(name: str, root: Path = ROOT) -> str | None:
    """Return a setting ("net/ipv4/ip_forward"), or None if the kernel has none of that name."""
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


class EnforcedSettings:
    """Settings that rules rely on and that stay as they are: `verify` sets again what others changed."""

    def __init__(self, wanted: Mapping[str, str], root: Path = ROOT) -> None:
        """`wanted` is value by name; one that the kernel does not have (its device is not there) is passed over."""
        self._wanted, self._root = dict(wanted), root
        self._correct: set[str] = set()
        self._logged: set[str] = set()

    async def verify(self) -> list[str]:
        """Set what is not so; return what others had changed. The log has each once, the metric counts all."""
        await self._load_bridge_filter()
        return [name for name, value in self._wanted.items() if self._set(name, value)]

    def _set(self, name: str, value: str) -> bool:
        """Set one; return whether it had been right before."""
        found, before, known = read(name, self._root), name in self._correct, name.replace("/", ".")
        if found is None:
            self._correct.discard(name)
            return False
        if found != value:
            try:
                (self._root / name).write_text(value)
            except OSError as error:
                self._log_once(f"sysctl {known} cannot be set to {value}: {error.strerror}")
                return False
        self._correct.add(name)
        if found == value or not before:
            return False
        metrics.SYSCTL_REPAIRS.labels(known).inc()
        self._log_once(f"sysctl {known} was changed by another program and is set again to {value}")
        return True

    async def _load_bridge_filter(self) -> None:
        """Load the module that has the settings for bridges, where it is not there (any more)."""
        if any(name in self._wanted and read(name, self._root) is None for name in BRIDGED.values()):
            try:
                await run(["modprobe", "br_netfilter"], timeout=20)
            except CommandError as error:
                self._log_once(f"bridged pod traffic will not pass the Service rules: {error}")

    def _log_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.warning("%s", text)


def network_settings(families: tuple[int, ...], bridge: str, tunnel: str, *, ipvs: bool) -> dict[str, str]:
    """Return what the pod network relies on: the node forwards, and iptables sees what crosses a bridge.

    Without the latter an answer from a pod to a pod on the same bridge is not translated back and is refused, and network
    policies judge nothing between the two.
    """
    wanted: dict[str, str] = {}
    if 4 in families:
        # What comes by the tunnel may be answered by a link where the nodes' netmasks differ.
        wanted |= {"net/ipv4/ip_forward": "1", BRIDGED[4]: "1", f"net/ipv4/conf/{tunnel}/rp_filter": "2"}
    if 6 in families:
        wanted |= {"net/ipv6/conf/all/forwarding": "1", BRIDGED[6]: "1", f"net/ipv6/conf/{bridge}/accept_ra": "0"}
    if ipvs:
        wanted["net/ipv4/vs/conntrack"] = "1"  # policies judge what IPVS sends by the state of its connection
    return wanted


def apply_conntrack(config: ConntrackConfig, cpus: int | None = None) -> None:
    """Raise connection tracking's limits to what the configuration requests; never lower the table's size.

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
    """Set oom_score_adj: the kernel spares this process (-1000) or kills it first (1000). Log where it cannot be set."""
    try:
        file.write_text(str(score))
    except OSError as error:
        log.warning("oomScoreAdj cannot be set to %d: %s", score, error.strerror)
