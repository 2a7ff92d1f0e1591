"""Validates a configuration; the error names the first field that cannot be used."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from netproxy.config import DNS_PODS, LOCAL_MODES, MODES, NODE_ROUTES, SCHEDULER_FLAGS, SCHEDULERS, ProxyConfig
from netproxy.errors import ConfigError


def validate(config: ProxyConfig) -> None:
    """Raise ConfigError for the first value that cannot be used."""
    _one_of("mode", config.mode, MODES)
    if not 0 <= config.masquerade_bit <= 31:
        raise ConfigError(f"iptables.masqueradeBit: {config.masquerade_bit} is not within 0 to 31")
    if config.sync_period <= 0 or not 0 <= config.min_sync_period <= config.sync_period:
        raise ConfigError(
            f"minSyncPeriod: {config.min_sync_period:g}s is not within 0 and syncPeriod ({config.sync_period:g}s)"
        )
    if config.oom_score_adjust is not None and not -1000 <= config.oom_score_adjust <= 1000:
        raise ConfigError(f"oomScoreAdj: {config.oom_score_adjust} is not within -1000 to 1000")
    _one_of("logging.format", config.log_format, ("text", "json"))
    _addresses(config)
    _local_traffic(config)
    _ipvs(config)
    if config.conntrack.max_per_core < 0 or config.conntrack.min < 0:
        raise ConfigError("conntrack.maxPerCore, conntrack.min: must not be below 0")
    pods = config.pod_network
    _one_of("node routes", pods.node_routes, NODE_ROUTES)
    if not 0 < pods.vxlan_port < 65536 or not 0 < pods.vxlan_id < 1 << 24:
        raise ConfigError(f"VXLAN: port {pods.vxlan_port} or network {pods.vxlan_id} is out of range")
    _one_of("dns pods", config.dns.pods, DNS_PODS)
    if not 0 <= config.dns.ttl <= 3600:
        raise ConfigError(f"dns ttl: {config.dns.ttl} is not within 0 to 3600")


def _addresses(config: ProxyConfig) -> None:
    _each(config.cluster_cidrs, "clusterCIDR", ipaddress.ip_network)
    _each(config.service_cidrs, "serviceCIDR", ipaddress.ip_network)
    _each(
        [value for value in config.node_port_addresses if value != "primary"], "nodePortAddresses", ipaddress.ip_network
    )
    _each([config.bind_address], "bindAddress", ipaddress.ip_address)
    _each(config.dns.addresses, "dns.addresses", ipaddress.ip_address)
    for path, value in (
        ("healthzBindAddress", config.healthz_bind_address),
        ("metricsBindAddress", config.metrics_bind_address),
    ):
        if value:
            host_port(value, path)


def _local_traffic(config: ProxyConfig) -> None:
    _one_of("detectLocalMode", config.detect_local_mode, LOCAL_MODES)
    for wanted, name, value in (
        ("BridgeInterface", "bridgeInterface", config.bridge_interface),
        ("InterfaceNamePrefix", "interfaceNamePrefix", config.interface_name_prefix),
    ):
        if config.detect_local_mode == wanted and not re.fullmatch(r"[^\s/+]{1,15}", value):
            raise ConfigError(f"detectLocal.{name}: {value!r} is not the name of a network device")


def _ipvs(config: ProxyConfig) -> None:
    settings = config.ipvs
    _one_of("ipvs.scheduler", settings.scheduler, SCHEDULERS)
    for flag in settings.scheduler_flags:
        _one_of("IPVS scheduler flags", flag, SCHEDULER_FLAGS)
        if not flag.startswith(f"{settings.scheduler}-"):
            raise ConfigError(f"IPVS scheduler flags: {flag} is not a flag of the scheduler {settings.scheduler}")
    _each(settings.exclude_cidrs, "ipvs.excludeCIDRs", ipaddress.ip_network)


def host_port(text: str, path: str) -> tuple[str, int]:
    """Split "host:port" (IPv6 in brackets); ConfigError where it is not one."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{path}: {text!r} is not an address and a port")
    _each([host or "0.0.0.0"], path, ipaddress.ip_address)
    return host or "0.0.0.0", int(port)


def _one_of(path: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{path}: unsupported value {value!r}: use one of {', '.join(allowed)}")


def _each(values: Any, path: str, check: Callable[[str], object]) -> None:
    for value in values:
        try:
            check(value)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
