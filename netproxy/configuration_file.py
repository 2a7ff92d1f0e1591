"""Reads and writes upstream's configuration file (`kind: KubeProxyConfiguration`, kubeproxy.config.k8s.io/v1alpha1).

One table says which field is which setting; a second, which fields have no meaning here and why, which is logged where one is
set. A field in neither is an error, as it is upstream (strict decoding). An empty text, null or a missing field leaves
the default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kube import duration, yaml_errors
from netproxy.config import ProxyConfig
from netproxy.errors import ConfigError
from netproxy.validation import validate

log = logging.getLogger(__name__)
API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"
Read = Callable[[Any, str], Any]


def parse_duration(text: Any, path: str) -> float:
    """Read a Go duration ("1h30m", "250ms", "0s") and return seconds; ConfigError names the field where it is none."""
    try:
        found = duration.parse("0" if text == 0 else text if isinstance(text, str) else "")
    except ValueError:
        found = -1.0
    if found < 0:
        raise ConfigError(f"{path}: invalid duration {text!r}: write it as in 30s, 1h30m or 250ms")
    return found


def _typed(kind: type, word: str) -> Read:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConfigError(f"{path}: expected {word}, got {value!r}")
        return value

    return read


def _listing(value: Any, path: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(","))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ConfigError(f"{path}: expected a list of strings, got {value!r}")


TEXT, FLAG, NUMBER = _typed(str, "a string"), _typed(bool, "true or false"), _typed(int, "a whole number")
SECONDS, LIST = parse_duration, _listing

FIELDS: dict[str, tuple[str, Read]] = {
    "clientConnection.kubeconfig": ("kubeconfig", TEXT),
    "hostnameOverride": ("hostname_override", TEXT),
    "mode": ("mode", TEXT),
    "bindAddress": ("bind_address", TEXT),
    "healthzBindAddress": ("healthz_bind_address", TEXT),
    "metricsBindAddress": ("metrics_bind_address", TEXT),
    "bindAddressHardFail": ("bind_address_hard_fail", FLAG),
    "clusterCIDR": ("cluster_cidrs", LIST),
    "nodePortAddresses": ("node_port_addresses", LIST),
    "detectLocalMode": ("detect_local_mode", TEXT),
    "detectLocal.bridgeInterface": ("bridge_interface", TEXT),
    "detectLocal.interfaceNamePrefix": ("interface_name_prefix", TEXT),
    "oomScoreAdj": ("oom_score_adjust", NUMBER),
    "logging.verbosity": ("verbosity", NUMBER),
    "logging.format": ("log_format", TEXT),
    "iptables.localhostNodePorts": ("localhost_node_ports", FLAG),
    "iptables.masqueradeBit": ("masquerade_bit", NUMBER),
    "iptables.masqueradeAll": ("masquerade_all", FLAG),
    "iptables.syncPeriod": ("sync_period", SECONDS),
    "iptables.minSyncPeriod": ("min_sync_period", SECONDS),
    "nftables.masqueradeBit": ("masquerade_bit", NUMBER),
    "nftables.masqueradeAll": ("masquerade_all", FLAG),
    "nftables.syncPeriod": ("sync_period", SECONDS),
    "nftables.minSyncPeriod": ("min_sync_period", SECONDS),
    "ipvs.syncPeriod": ("sync_period", SECONDS),
    "ipvs.minSyncPeriod": ("min_sync_period", SECONDS),
    "ipvs.scheduler": ("ipvs.scheduler", TEXT),
    "ipvs.excludeCIDRs": ("ipvs.exclude_cidrs", LIST),
    "ipvs.strictARP": ("ipvs.strict_arp", FLAG),
    "ipvs.tcpTimeout": ("ipvs.tcp_timeout", SECONDS),
    "ipvs.tcpFinTimeout": ("ipvs.tcp_fin_timeout", SECONDS),
    "ipvs.udpTimeout": ("ipvs.udp_timeout", SECONDS),
    "conntrack.maxPerCore": ("conntrack.max_per_core", NUMBER),
    "conntrack.min": ("conntrack.min", NUMBER),
    "conntrack.tcpEstablishedTimeout": ("conntrack.tcp_established_timeout", SECONDS),
    "conntrack.tcpCloseWaitTimeout": ("conntrack.tcp_close_wait_timeout", SECONDS),
    "conntrack.tcpBeLiberal": ("conntrack.tcp_be_liberal", FLAG),
    "conntrack.udpTimeout": ("conntrack.udp_timeout", SECONDS),
    "conntrack.udpStreamTimeout": ("conntrack.udp_stream_timeout", SECONDS),
}
"""Field -> setting (of a nested value with a dot), how it is read."""
OF_A_MODE = ("masquerade_bit", "masquerade_all", "sync_period", "min_sync_period")
"""Settings that several sections name: the one of the mode in use counts; the IPVS mode masquerades as `iptables` says."""

WITHOUT_EFFECT: dict[str, str] = {
    "apiVersion": "",
    "kind": "",
    "featureGates.*": "no feature gate changes anything here: what is stable or beta upstream is on",
    "clientConnection.acceptContentTypes": "the API is spoken to in JSON",
    "clientConnection.contentType": "the API is spoken to in JSON",
    "clientConnection.qps": "requests are not limited: there are none but watches and events",
    "clientConnection.burst": "requests are not limited: there are none but watches and events",
    "logging.flushFrequency": "every line is written at once",
    "logging.vmodule": "the level is one for all modules",
    "logging.options.*": "logs go to standard error",
    "enableProfiling": "there is no profiler to serve",
    "showHiddenMetricsForVersion": "no metric is hidden",
    "configSyncPeriod": "objects are followed by watches, which need no refresh",
    "portRange": "no port is opened for a Service, as in upstream's since 1.23",
    "windowsRunAsService": "",
    "winkernel.*": "",
}
"""Fields that upstream knows and that change nothing here -> why, for the log; "" is not logged."""


def load(path: str | Path, base: ProxyConfig | None = None) -> ProxyConfig:
    """Read a KubeProxyConfiguration file on top of `base`; raises ConfigError with the field."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {yaml_errors.with_line(error, text)}") from error
    try:
        return parse(document, base)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(document: Any, base: ProxyConfig | None = None) -> ProxyConfig:
    """Turn a decoded KubeProxyConfiguration into a ProxyConfig; omitted fields keep the value of `base`."""
    config = base or ProxyConfig()
    if not isinstance(document, Mapping):
        raise ConfigError(f"expected a {KIND}, got {type(document).__name__}")
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        raise ConfigError(
            f"expected apiVersion {API_VERSION} and kind {KIND}, got {document.get('apiVersion')!r} and "
            f"{document.get('kind')!r}"
        )
    values = dict(_flat(document, ""))
    for path, value in values.items():
        reason = WITHOUT_EFFECT.get(path) or WITHOUT_EFFECT.get(f"{path.split('.')[0]}.*")
        if reason and value:
            log.warning("%s has no effect: %s", path, reason)
    mode = TEXT(values.get("mode") or config.mode, "mode")
    for path, (setting, read) in FIELDS.items():
        given = values.get(path)
        if given is None or given == "":
            continue
        value = read(given, path)
        if setting in OF_A_MODE and path.split(".")[0] != section(setting, mode):
            continue
        if value == 0 and setting == "sync_period":
            continue  # upstream's default too
        config = _with(config, setting, value)
    validate(config)
    return config


def dump(config: ProxyConfig) -> str:
    """Return the configuration as such a file, whole: what is in force, and every field that there is to change."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for path, (setting, read) in FIELDS.items():
        value: Any = config
        for name in setting.split("."):
            value = getattr(value, name)
        if read is SECONDS:
            value = f"{value:g}s"
        elif read is LIST:
            value = ",".join(value) if path == "clusterCIDR" else list(value)
        *sections, last = path.split(".")
        inner = document
        for name in sections:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return yaml.safe_dump(document, sort_keys=True)


def section(setting: str, mode: str) -> str:
    """Return the section of the file with a setting of `OF_A_MODE` for a mode."""
    if mode == "nftables":
        return mode
    return mode if mode == "ipvs" and "sync" in setting else "iptables"


def _with(config: ProxyConfig, setting: str, value: Any) -> ProxyConfig:
    outer, _, name = setting.rpartition(".")
    if not outer:
        return replace(config, **{name: value})
    return replace(config, **{outer: replace(getattr(config, outer), **{name: value})})


_KNOWN = {*FIELDS, *WITHOUT_EFFECT}
_SECTIONS = {path.rpartition(".")[0] for path in _KNOWN} - {""}


def _flat(document: Mapping[str, Any], inside: str) -> list[tuple[str, Any]]:
    """Return (dotted path, value) of every field; ConfigError for one that is not known."""
    found: list[tuple[str, Any]] = []
    for key, value in document.items():
        path = f"{inside}{key}"
        if path in _SECTIONS:
            if isinstance(value, Mapping):
                found += _flat(value, f"{path}.")
            elif value is not None:
                raise ConfigError(f"{path}: expected a mapping, got {type(value).__name__}")
        elif path in _KNOWN or f"{inside}*" in _KNOWN:
            found.append((path, value))
        else:
            raise ConfigError(f'unknown field "{path}"')
    return found
