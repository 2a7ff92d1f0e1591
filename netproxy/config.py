"""Configuration of a node's network role, as one frozen value. No I/O.

The proxy's own part comes from upstream's file and flags (configuration_file.py, flags.py). What upstream's proxy does not
do (cluster DNS, the pod network) has settings of our own, which come from flags or from the process that embeds this role.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

MODES = ("iptables", "nftables", "ipvs", "auto")
LOCAL_MODES = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
DNS_PODS = ("insecure", "verified", "disabled")
NODE_ROUTES = ("auto", "host-gw", "vxlan", "none")
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "mh", "dh", "sed", "nq", "fo", "ovf")
"""The kernel's, each a module ip_vs_NAME."""
SCHEDULER_FLAGS = ("sh-fallback", "sh-port", "mh-fallback", "mh-port")


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
    scheduler_flags: tuple[str, ...] = ()
    """ipvsadm's --sched-flags: what `sh` and `mh` hash and whether they skip endpoints of weight 0. None given: "mh-port" for
    `mh`, as upstream sets it."""
    exclude_cidrs: tuple[str, ...] = ()
    """Virtual servers in these ranges belong to other programs."""
    strict_arp: bool = False
    tcp_timeout: float = 0
    tcp_fin_timeout: float = 0
    udp_timeout: float = 0


@dataclass(frozen=True, slots=True)
class DNSConfig:
    """Cluster DNS on this node: the addresses it answers on, the domain it owns, where it requests the rest."""

    enabled: bool = True
    addresses: tuple[str, ...] = ("10.96.0.10",)
    port: int = 53
    domain: str = "cluster.local"
    ttl: int = 5
    resolv_conf: str = "/etc/resolv.conf"
    pods: str = "insecure"
    """Answers to names of pods: "insecure" by the name alone, "verified" for pods that exist (all pods are followed),
    "disabled" nothing; as CoreDNS' option of that name."""


@dataclass(frozen=True, slots=True)
class PodNetworkConfig:
    """The pod network on this node; `mtu` 0 takes the uplink's, less what a tunnel adds where there may be one."""

    enabled: bool = True
    cni_conf_dir: str = "/etc/cni/net.d"
    cni_data_dir: str = "/var/lib/cni/networks"
    run_dir: str = "/run/wherry-pods"
    """The folder of the file that allows pods to start; a boot must empty it."""
    bridge: str = "cni0"
    mtu: int = 0
    host_ports: bool = True
    network_policy: bool = True
    """True if NetworkPolicies are enforced here."""
    source_guard: bool = True
    """True if pods are kept from sending with addresses that are not theirs."""
    cni_results_dir: str = "/var/lib/cni/results"
    """The folder where the runtime's CNI library keeps results; libcni's default, which containerd and CRI-O leave."""
    node_routes: str = "auto"
    """Routes to pods of other nodes: host-gw, vxlan, auto (host-gw on a shared link, vxlan otherwise), none."""
    vxlan_port: int = 8472
    """Linux' own default; 4789 is taken where Docker Swarm is."""
    vxlan_id: int = 1


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The role's whole configuration."""

    kubeconfig: str = ""
    hostname_override: str = ""
    services: bool = True
    """True if Services are proxied; False if another proxy does it, and cluster DNS and pod network are left."""
    mode: str = "iptables"
    bind_address: str = "0.0.0.0"
    healthz_bind_address: str = "0.0.0.0:10256"
    metrics_bind_address: str = "127.0.0.1:10249"
    bind_address_hard_fail: bool = False
    cluster_cidrs: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ("10.96.0.0/12",)
    gateway: bool = True
    """True if Gateways and Ingresses are served, by a process that runs while there are any."""
    service_load_balancer: bool = True
    """True if the control plane may give Services of type LoadBalancer the nodes' own addresses (`service_lb`)."""
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    node_port_addresses: tuple[str, ...] = ()
    detect_local_mode: str = "ClusterCIDR"
    bridge_interface: str = ""
    interface_name_prefix: str = ""
    sync_period: float = 30
    """Seconds between comparisons of everything with what the kernel holds, where no fingerprint shows every change."""
    min_sync_period: float = 0
    """Seconds between two writes at least; upstream's default of 1 s is not ours."""
    oom_score_adjust: int | None = None
    """None leaves the process as it was started."""
    verbosity: int = 0
    """klog's; from 4 on everything is logged."""
    log_format: str = "text"
    iptables_flavour: str = "auto"
    conntrack: ConntrackConfig = field(default_factory=ConntrackConfig)
    ipvs: IPVSConfig = field(default_factory=IPVSConfig)
    dns: DNSConfig = field(default_factory=DNSConfig)
    pod_network: PodNetworkConfig = field(default_factory=PodNetworkConfig)

    @property
    def node_name(self) -> str:
        """This node's name: what was given, else the host's, as upstream forms it."""
        return (self.hostname_override or os.uname().nodename).strip().lower()

    @property
    def masquerade_mark(self) -> str:
        """The packet mark that requests source NAT, as iptables prints it."""
        return f"{1 << self.masquerade_bit:#x}"

    @property
    def local_interface(self) -> str:
        """The interface of this node's pods as iptables writes it, "" where pods are recognized by their addresses."""
        if self.detect_local_mode == "BridgeInterface":
            return self.bridge_interface
        return f"{self.interface_name_prefix}+" if self.detect_local_mode == "InterfaceNamePrefix" else ""

    @property
    def families(self) -> tuple[int, ...]:
        """The IP families served here: IPv4 always, IPv6 where a cluster, service or bind address is of it."""
        texts = (*self.cluster_cidrs, *self.service_cidrs, self.bind_address)
        return (4, 6) if any(":" in text for text in texts) else (4,)
