"""What a node's network role is told at its start, as one frozen value.

The proxy's own part is read from upstream's file (`kind: KubeProxyConfiguration`, kubeproxy.config.k8s.io/v1alpha1), so
a file written for kube-proxy works here. A field that upstream does not know is an error, as it is there (strict
decoding); a field that upstream knows and that has no meaning here (Windows, IPVS schedulers in iptables mode) is
accepted and ignored. What upstream's proxy does not do (cluster DNS, the pod network) has settings of our own that
come from flags or from the process that embeds this role.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from kube import duration
from netproxy.errors import ConfigError

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"
MODES = ("iptables", "nftables", "ipvs", "auto")
LOCAL_MODES = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
DNS_PODS = ("insecure", "verified", "disabled")
NODE_ROUTES = ("auto", "host-gw", "vxlan", "none")


@dataclass(frozen=True, slots=True)
class ConntrackConfig:
    """Connection tracking limits; seconds, 0 leaves the kernel's value. Defaults are upstream's."""

    max_per_core: int = 32768
    min: int = 131072
    tcp_established_timeout: float = 86400
    tcp_close_wait_timeout: float = 3600
    tcp_be_liberal: bool = False
    udp_timeout: float = 0
    udp_stream_timeout: float = 0


@dataclass(frozen=True, slots=True)
class IPVSConfig:
    """The IPVS mode; seconds, 0 leaves the kernel's value."""

    scheduler: str = "rr"
    exclude_cidrs: tuple[str, ...] = ()
    """Virtual servers in these ranges are somebody else's."""
    strict_arp: bool = False
    tcp_timeout: float = 0
    tcp_fin_timeout: float = 0
    udp_timeout: float = 0


@dataclass(frozen=True, slots=True)
class DNSConfig:
    """Cluster DNS on this node: the addresses it answers on, the domain it owns, where it asks for the rest."""

    enabled: bool = True
    addresses: tuple[str, ...] = ("10.96.0.10",)
    port: int = 53
    domain: str = "cluster.local"
    ttl: int = 5
    resolv_conf: str = "/etc/resolv.conf"
    pods: str = "insecure"
    """What names of pods answer: "insecure" by the name alone, "verified" for pods that exist (all pods are followed),
    "disabled" nothing; as CoreDNS' option of that name."""


@dataclass(frozen=True, slots=True)
class PodNetworkConfig:
    """The pod network on this node; `mtu` 0 takes the uplink's, less what a tunnel adds where there may be one."""

    enabled: bool = True
    cni_conf_dir: str = "/etc/cni/net.d"
    cni_data_dir: str = "/var/lib/cni/networks"
    bridge: str = "cni0"
    mtu: int = 0
    host_ports: bool = True
    network_policy: bool = True
    """Whether NetworkPolicies are enforced here."""
    node_routes: str = "auto"
    """How pods of other nodes are reached: host-gw, vxlan, auto (host-gw on a shared link, vxlan otherwise), none."""
    vxlan_port: int = 8472
    """Linux' own default; 4789 is taken where Docker Swarm is."""
    vxlan_id: int = 1


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The role's whole configuration."""

    kubeconfig: str = ""
    hostname_override: str = ""
    mode: str = "iptables"
    bind_address: str = "0.0.0.0"
    healthz_bind_address: str = "0.0.0.0:10256"
    metrics_bind_address: str = "127.0.0.1:10249"
    bind_address_hard_fail: bool = False
    cluster_cidrs: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ("10.96.0.0/12",)
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    node_port_addresses: tuple[str, ...] = ()
    detect_local_mode: str = "ClusterCIDR"
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    sync_period: float = 30
    iptables_flavour: str = "auto"
    conntrack: ConntrackConfig = field(default_factory=ConntrackConfig)
    ipvs: IPVSConfig = field(default_factory=IPVSConfig)
    dns: DNSConfig = field(default_factory=DNSConfig)
    pod_network: PodNetworkConfig = field(default_factory=PodNetworkConfig)

    @property
    def masquerade_mark(self) -> str:
        """The packet mark that asks for source NAT, as iptables prints it."""
        return f"{1 << self.masquerade_bit:#x}"

    @property
    def local_interface(self) -> str:
        """Where this node's pods' packets come in, as iptables writes it, if that is how they are told."""
        if self.detect_local_mode == "BridgeInterface":
            return self.bridge_interface
        return f"{self.interface_name_prefix}+" if self.detect_local_mode == "InterfaceNamePrefix" else ""

    @property
    def families(self) -> tuple[int, ...]:
        """The IP families served here: IPv4 always, IPv6 where a cluster, service or bind address is of it."""
        texts = (*self.cluster_cidrs, *self.service_cidrs, self.bind_address)
        return (4, 6) if any(":" in text for text in texts) else (4,)


def parse_duration(text: Any, path: str) -> float:
    """Read a Go duration ("1h30m", "250ms", "0s") and return seconds; ConfigError names the field where it is none."""
    try:
        found = duration.parse("0" if text == 0 else text if isinstance(text, str) else "")
    except ValueError:
        found = -1.0
    if found < 0:
        raise ConfigError(f"{path}: invalid duration {text!r}: write it as in 30s, 1h30m or 250ms")
    return found


# Every field of upstream's type (pkg/proxy/apis/config, v1alpha1): a nested mapping, or None for a plain value.
_FIELDS: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "featureGates": {"*": None},
    "clientConnection": {
        "kubeconfig": None,
        "acceptContentTypes": None,
        "contentType": None,
        "qps": None,
        "burst": None,
    },
    "logging": {"format": None, "flushFrequency": None, "verbosity": None, "vmodule": None, "options": {"*": None}},
    "hostnameOverride": None,
    "bindAddress": None,
    "healthzBindAddress": None,
    "metricsBindAddress": None,
    "bindAddressHardFail": None,
    "enableProfiling": None,
    "showHiddenMetricsForVersion": None,
    "mode": None,
    "iptables": {
        "masqueradeBit": None,
        "masqueradeAll": None,
        "localhostNodePorts": None,
        "syncPeriod": None,
        "minSyncPeriod": None,
    },
    "ipvs": {
        "syncPeriod": None,
        "minSyncPeriod": None,
        "scheduler": None,
        "excludeCIDRs": None,
        "strictARP": None,
        "tcpTimeout": None,
        "tcpFinTimeout": None,
        "udpTimeout": None,
    },
    "nftables": {"masqueradeBit": None, "masqueradeAll": None, "syncPeriod": None, "minSyncPeriod": None},
    "winkernel": {
        "networkName": None,
        "sourceVip": None,
        "enableDSR": None,
        "rootHnsEndpointName": None,
        "forwardHealthCheckVip": None,
    },
    "detectLocalMode": None,
    "detectLocal": {"bridgeInterface": None, "interfaceNamePrefix": None},
    "clusterCIDR": None,
    "nodePortAddresses": None,
    "oomScoreAdj": None,
    "conntrack": {
        "maxPerCore": None,
        "min": None,
        "tcpEstablishedTimeout": None,
        "tcpCloseWaitTimeout": None,
        "tcpBeLiberal": None,
        "udpTimeout": None,
        "udpStreamTimeout": None,
    },
    "configSyncPeriod": None,
    "portRange": None,
    "windowsRunAsService": None,
}


def load(path: str | Path, base: ProxyConfig | None = None) -> ProxyConfig:
    """Read a KubeProxyConfiguration file on top of `base`; ConfigError says what is wrong and where."""
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    try:
        return parse(document, base)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(document: Any, base: ProxyConfig | None = None) -> ProxyConfig:
    """Turn a decoded KubeProxyConfiguration into a ProxyConfig; fields left out keep what `base` says."""
    config = base or ProxyConfig()
    if not isinstance(document, Mapping):
        raise ConfigError(f"expected a {KIND}, got {type(document).__name__}")
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        raise ConfigError(
            f"expected apiVersion {API_VERSION} and kind {KIND}, got {document.get('apiVersion')!r} and "
            f"{document.get('kind')!r}"
        )
    _reject_unknown(document, _FIELDS, "")
    read = _Reader(document)
    mode = read.text("mode", config.mode) or "iptables"
    backend = "nftables" if mode == "nftables" else "iptables"
    timing = mode if mode in ("nftables", "ipvs") else "iptables"
    conntrack = config.conntrack
    config = replace(
        config,
        kubeconfig=read.text("clientConnection.kubeconfig", config.kubeconfig),
        hostname_override=read.text("hostnameOverride", config.hostname_override),
        mode=mode,
        bind_address=read.text("bindAddress", config.bind_address) or "0.0.0.0",
        healthz_bind_address=read.text("healthzBindAddress", "") or config.healthz_bind_address,
        metrics_bind_address=read.text("metricsBindAddress", "") or config.metrics_bind_address,
        bind_address_hard_fail=read.flag("bindAddressHardFail", config.bind_address_hard_fail),
        cluster_cidrs=read.listing("clusterCIDR", config.cluster_cidrs),
        masquerade_bit=read.number(f"{backend}.masqueradeBit", config.masquerade_bit),
        masquerade_all=read.flag(f"{backend}.masqueradeAll", config.masquerade_all),
        localhost_node_ports=read.flag("iptables.localhostNodePorts", config.localhost_node_ports),
        node_port_addresses=read.listing("nodePortAddresses", config.node_port_addresses),
        detect_local_mode=read.text("detectLocalMode", config.detect_local_mode) or "ClusterCIDR",
        bridge_interface=read.text("detectLocal.bridgeInterface", config.bridge_interface),
        interface_name_prefix=read.text("detectLocal.interfaceNamePrefix", config.interface_name_prefix),
        sync_period=read.seconds(f"{timing}.syncPeriod", config.sync_period) or 30,
        ipvs=IPVSConfig(
            scheduler=read.text("ipvs.scheduler", config.ipvs.scheduler) or "rr",
            exclude_cidrs=read.listing("ipvs.excludeCIDRs", config.ipvs.exclude_cidrs),
            strict_arp=read.flag("ipvs.strictARP", config.ipvs.strict_arp),
            tcp_timeout=read.seconds("ipvs.tcpTimeout", config.ipvs.tcp_timeout),
            tcp_fin_timeout=read.seconds("ipvs.tcpFinTimeout", config.ipvs.tcp_fin_timeout),
            udp_timeout=read.seconds("ipvs.udpTimeout", config.ipvs.udp_timeout),
        ),
        conntrack=ConntrackConfig(
            max_per_core=read.number("conntrack.maxPerCore", conntrack.max_per_core),
            min=read.number("conntrack.min", conntrack.min),
            tcp_established_timeout=read.seconds("conntrack.tcpEstablishedTimeout", conntrack.tcp_established_timeout),
            tcp_close_wait_timeout=read.seconds("conntrack.tcpCloseWaitTimeout", conntrack.tcp_close_wait_timeout),
            tcp_be_liberal=read.flag("conntrack.tcpBeLiberal", conntrack.tcp_be_liberal),
            udp_timeout=read.seconds("conntrack.udpTimeout", conntrack.udp_timeout),
            udp_stream_timeout=read.seconds("conntrack.udpStreamTimeout", conntrack.udp_stream_timeout),
        ),
    )
    validate(config)
    return config


def validate(config: ProxyConfig) -> None:
    """Raise ConfigError for the first value that cannot be used."""
    if config.mode not in MODES:
        raise ConfigError(f"mode: unsupported value {config.mode!r}: use one of {', '.join(MODES)}")
    if not 0 <= config.masquerade_bit <= 31:
        raise ConfigError(f"iptables.masqueradeBit: {config.masquerade_bit} is not within 0 to 31")
    if config.detect_local_mode not in LOCAL_MODES:
        raise ConfigError(
            f"detectLocalMode: unsupported value {config.detect_local_mode!r}: use one of {', '.join(LOCAL_MODES)}"
        )
    for wanted, name, value in (
        ("BridgeInterface", "bridgeInterface", config.bridge_interface),
        ("InterfaceNamePrefix", "interfaceNamePrefix", config.interface_name_prefix),
    ):
        if config.detect_local_mode == wanted and not re.fullmatch(r"[^\s/+]{1,15}", value):
            raise ConfigError(f"detectLocal.{name}: {value!r} is not the name of a network device")
    if not re.fullmatch(r"[a-z0-9]+", config.ipvs.scheduler):
        raise ConfigError(f"ipvs.scheduler: {config.ipvs.scheduler!r} is not the name of a scheduler")
    _each(config.ipvs.exclude_cidrs, "ipvs.excludeCIDRs", ipaddress.ip_network)
    pods = config.pod_network
    if pods.node_routes not in NODE_ROUTES:
        raise ConfigError(f"node routes: unsupported value {pods.node_routes!r}: use one of {', '.join(NODE_ROUTES)}")
    if not 0 < pods.vxlan_port < 65536 or not 0 < pods.vxlan_id < 1 << 24:
        raise ConfigError(f"VXLAN: port {pods.vxlan_port} or network {pods.vxlan_id} is out of range")
    _each(config.cluster_cidrs, "clusterCIDR", ipaddress.ip_network)
    _each(config.service_cidrs, "serviceCIDR", ipaddress.ip_network)
    _each(
        [value for value in config.node_port_addresses if value != "primary"], "nodePortAddresses", ipaddress.ip_network
    )
    _each([config.bind_address], "bindAddress", ipaddress.ip_address)
    _each(config.dns.addresses, "dns.addresses", ipaddress.ip_address)
    if config.dns.pods not in DNS_PODS:
        raise ConfigError(f"dns pods: unsupported value {config.dns.pods!r}: use one of {', '.join(DNS_PODS)}")
    for path, value in (
        ("healthzBindAddress", config.healthz_bind_address),
        ("metricsBindAddress", config.metrics_bind_address),
    ):
        if value:
            host_port(value, path)


def host_port(text: str, path: str) -> tuple[str, int]:
    """Split "host:port" (IPv6 in brackets); ConfigError where it is not one."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{path}: {text!r} is not an address and a port")
    _each([host or "0.0.0.0"], path, ipaddress.ip_address)
    return host or "0.0.0.0", int(port)


def _each(values: Any, path: str, check: Callable[[str], object]) -> None:
    for value in values:
        try:
            check(value)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error


def _reject_unknown(document: Mapping[str, Any], known: dict[str, Any], path: str) -> None:
    for key, value in document.items():
        if "*" in known:
            continue
        where = f"{path}{key}"
        if key not in known:
            raise ConfigError(f'unknown field "{where}"')
        nested = known[key]
        if nested is not None and value is not None:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where}: expected a mapping, got {type(value).__name__}")
            _reject_unknown(value, nested, f"{where}.")


class _Reader:
    """Typed look-ups by dotted path; a missing field or null yields the default, a wrong type ConfigError."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def _get(self, path: str) -> Any:
        value: Any = self._document
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def _typed(self, path: str, default: Any, kind: type, word: str) -> Any:
        value = self._get(path)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ConfigError(f"{path}: expected {word}, got {value!r}")
        return value

    def text(self, path: str, default: str) -> str:
        return str(self._typed(path, default, str, "a string"))

    def flag(self, path: str, default: bool) -> bool:
        return bool(self._typed(path, default, bool, "true or false"))

    def number(self, path: str, default: int) -> int:
        return int(self._typed(path, default, int, "a whole number"))

    def seconds(self, path: str, default: float) -> float:
        value = self._get(path)
        return default if value is None else parse_duration(value, path)

    def listing(self, path: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self._get(path)
        if value is None or value == "":
            return default
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(","))
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(f"{path}: expected a list of strings, got {value!r}")
