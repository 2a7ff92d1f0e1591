"""The agent's settings: one frozen dataclass, built once from upstream's configuration file and flags (configure.py).

Everything is in the units that the agent works in: seconds, bytes, absolute paths. Nothing below `main` reads a flag, a
configuration file or the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.cgroups.node_allocatable import Enforcement
from agent.cgroups.swap import NO_SWAP
from agent.kubelet_configuration import KubeletConfiguration, Taint
from agent.managers.options import ManagerOptions
from agent.podspec.userns import LENGTH

# The eviction thresholds in force where the file sets none (kubelet/eviction/defaults_linux.go).
DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


@dataclass(frozen=True, slots=True)
class OwnContainerd:
    """The socket and directories of a containerd that only this agent uses."""

    socket: Path
    root: Path
    state: Path
    reservations: Path
    """host-local's directory of the pod network: one file for each address, which contains the sandbox's ID."""
    network: Path
    """The CNI network list; with another pod network than the installation's there is none."""
    plugins: tuple[Path, ...]
    """The folders of the CNI plugins, in the order in which they are searched."""
    results: Path = Path("/var/lib/cni/results")
    """The directory of libcni's cached ADD results, for all networks of the machine."""

    @property
    def bundles(self) -> Path:
        return self.state / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def work(self) -> Path:
        return self.root / "io.containerd.runtime.v2.task" / "k8s.io"

    @property
    def namespaces(self) -> Path:
        """The directory in which containerd mounts network namespaces (netns_mounts_under_state_dir)."""
        return self.state / "io.containerd.grpc.v1.cri" / "netns"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledHandlers:
    """Handlers of the kubelet port that the configuration enables."""

    debugging: bool = True
    """Logs, commands and sessions, configuration: all but metrics and health."""
    system_logs: bool = True
    system_log_queries: bool = False
    profiling: bool = False
    flags: bool = True


@dataclass(frozen=True, slots=True)
class ShutdownPeriod:
    """Pods from this priority up to the next period's have so many seconds, after those of lower periods have ended."""

    priority: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Authentication and authorization of requests to the kubelet port; caches in seconds."""

    anonymous: bool = False
    webhook: bool = True
    authorization_mode: str = "Webhook"
    authentication_cache: float = 120.0
    authorized_cache: float = 300.0
    unauthorized_cache: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """Thresholds of resources by signal at which pods are evicted."""

    hard: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_EVICTION_HARD))
    soft: Mapping[str, str] = field(default_factory=dict)
    soft_grace: Mapping[str, float] = field(default_factory=dict)
    minimum_reclaim: Mapping[str, str] = field(default_factory=dict)
    max_pod_grace: int = 0
    pressure_transition: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Pulls, credentials and garbage collection of images."""

    serialize_pulls: bool = True
    max_parallel_pulls: int = 0
    """0: without limit, where pulls are not serial"""
    registry_credentials: Path | None = None
    """A docker configuration of the node besides the one in the root directory."""
    verification: str = "NeverVerifyPreloadedImages"
    """Kubelet setting imagePullCredentialsVerificationPolicy: the present images that a pod's credentials are verified for."""
    allowlist: tuple[str, ...] = ()
    credential_providers: Path | None = None
    """Their configuration: a file, or a folder of such"""
    credential_provider_dir: Path | None = None
    """The directory of their programs"""
    gc_high_percent: int = 85
    gc_low_percent: int = 80
    maximum_age: float = 0.0
    """0: images do not grow too old"""
    minimum_age: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Rotation of containers' logs."""

    max_bytes: int = 10 << 20
    max_files: int = 5
    check_period: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The node's identity, paths and limits; times in seconds, sizes in bytes."""

    node_name: str
    kubeconfig: Path | None = None
    bootstrap_kubeconfig: Path | None = None
    root_dir: Path = Path("/var/lib/kubelet")
    cert_dir: Path = Path("/var/lib/kubelet/pki")
    pod_logs_dir: Path = Path("/var/log/pods")
    container_logs_dir: Path = Path("/var/log/containers")
    system_logs_dir: Path = Path("/var/log")
    seccomp_profile_root: Path = Path("/var/lib/kubelet/seccomp")
    static_pod_path: Path | None = None
    runtime_endpoint: str = "unix:///run/containerd/containerd.sock"
    image_endpoint: str = ""
    runtime_request_timeout: float = 120.0
    containerd: OwnContainerd | None = None
    """Set if only this agent uses the containerd: resources that it leaks when it is killed are then removed."""
    required_network: str = ""
    """Name of the CNI network without which the node is not Ready; empty: any."""

    hostname: str = ""
    node_ips: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""
    register_node: bool = True
    max_pods: int = 110
    pod_pids_limit: int = -1

    address: str = "0.0.0.0"
    port: int = 10250
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = "VersionTLS12"
    client_ca_file: Path | None = None
    access: AccessSettings = field(default_factory=AccessSettings)
    rotate_certificates: bool = False
    server_tls_bootstrap: bool = False
    healthz_address: str = "127.0.0.1"
    healthz_port: int = 10248
    streaming_idle_timeout: float = 4 * 3600.0
    enable_server: bool = True
    handlers: EnabledHandlers = field(default_factory=EnabledHandlers)
    """The server's enabled handlers."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The command line's flags by name, shown by /flagz."""

    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: str = "/etc/resolv.conf"
    hosts_file: Path = Path("/etc/hosts")

    status_update_period: float = 10.0
    status_report_period: float = 300.0
    lease_duration: int = 40
    status_max_images: int = 50
    sync_period: float = 60.0

    cgroup_root: str = "/"
    cgroup_driver: str = "cgroupfs"
    cgroups_per_qos: bool = True
    cpu_cfs_quota: bool = True
    cpu_cfs_period: float = 0.1
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    managers: ManagerOptions = field(default_factory=ManagerOptions)
    enforcement: Enforcement = field(default_factory=Enforcement)
    swap_behavior: str = NO_SWAP
    single_process_oom_kill: bool = False
    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    fail_swap_on: bool = True
    loopback_guard: bool = False
    """Drop packets from other devices to 127.0.0.0/8. The configuration file's default is true."""
    seccomp_default: bool = False
    allowed_unsafe_sysctls: tuple[str, ...] = ()

    images: ImageSettings = field(default_factory=ImageSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    back_off_max: float = 300.0

    ids_per_pod: int = LENGTH
    """User and group IDs of a pod with a user namespace"""
    shutdown_periods: tuple[ShutdownPeriod, ...] = ()
    """Empty: the machine goes down without waiting for pods."""
    system_bus: str = "unix:path=/run/dbus/system_bus_socket"

    file: KubeletConfiguration = field(default_factory=KubeletConfiguration)
    """The file that the settings were built from; shown by /configz"""
    not_acted_on: tuple[str, ...] = ()
    """Fields of the configuration file that were accepted and change nothing."""

    @property
    def pods_dir(self) -> Path:
        return self.root_dir / "pods"

    @property
    def plugins_registry_dir(self) -> Path:
        """The directory in which CSI drivers, device plugins and DRA drivers register by a socket."""
        return self.root_dir / "plugins_registry"

    @property
    def local_path_dir(self) -> Path:
        """The directory of the local-path provisioner's volumes."""
        return self.root_dir / "local-path"
