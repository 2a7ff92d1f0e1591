"""Upstream's KubeletConfiguration file (kubelet.config.k8s.io/v1beta1), decoded strictly.

A field the format does not have is an error that names it, as with upstream's strict decoding: a misspelled setting must not
silently become a default. A field the format has and the agent does not act on is accepted, because the same file must start
both daemons, and is named in `not_acted_on` so that the agent can log it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent.files.decoding import DamagedFileError, decode_yaml
from kube import decode_errors, duration
from kube.tracing.configuration import TracingConfiguration

_GROUP_VERSION = "kubelet.config.k8s.io/v1beta1"


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file and the field."""


class _Base(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    pass


class X509Authentication(_Base):
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")


class WebhookAuthentication(_Base):
    enabled: bool = True
    cache_ttl: str = msgspec.field(default="2m", name="cacheTTL")


class AnonymousAuthentication(_Base):
    enabled: bool = False


class Authentication(_Base):
    x509: X509Authentication = msgspec.field(default_factory=X509Authentication)
    webhook: WebhookAuthentication = msgspec.field(default_factory=WebhookAuthentication)
    anonymous: AnonymousAuthentication = msgspec.field(default_factory=AnonymousAuthentication)


class WebhookAuthorization(_Base):
    cache_authorized_ttl: str = msgspec.field(default="5m", name="cacheAuthorizedTTL")
    cache_unauthorized_ttl: str = msgspec.field(default="30s", name="cacheUnauthorizedTTL")


class Authorization(_Base):
    mode: str = "Webhook"
    webhook: WebhookAuthorization = msgspec.field(default_factory=WebhookAuthorization)


class Taint(_Base):
    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class CrashLoopBackOff(_Base):
    max_container_restart_period: str = "5m"


class UserNamespaces(_Base):
    ids_per_pod: int = 65536


class ShutdownGracePeriodByPodPriority(_Base):
    priority: int
    shutdown_grace_period_seconds: int


class MemorySwap(_Base):
    swap_behavior: str = ""


class MemoryReservation(_Base):
    numa_node: int = 0
    limits: dict[str, str | int] = msgspec.field(default_factory=dict)


class LoggingConfiguration(_Base):
    format: str = "text"
    verbosity: int = 0
    flush_frequency: str | int = "5s"
    """Without effect, as the two others: every line is written at once, and the level is one for all modules."""
    vmodule: list[dict[str, Any]] = msgspec.field(default_factory=list)
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class KubeletConfiguration(_Base):
    """The fields that the agent acts on, with upstream's defaults."""

    api_version: str = ""
    kind: str = ""
    static_pod_path: str = ""
    file_check_frequency: str = "20s"
    address: str = "0.0.0.0"
    port: int = 10250
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: list[str] = msgspec.field(default_factory=list)
    tls_min_version: str = ""
    rotate_certificates: bool = False
    server_tls_bootstrap: bool = msgspec.field(default=False, name="serverTLSBootstrap")
    authentication: Authentication = msgspec.field(default_factory=Authentication)
    authorization: Authorization = msgspec.field(default_factory=Authorization)
    healthz_port: int = 10248
    healthz_bind_address: str = "127.0.0.1"
    cluster_domain: str = ""
    cluster_dns: list[str] = msgspec.field(default_factory=list, name="clusterDNS")
    resolv_conf: str | None = None
    streaming_connection_idle_timeout: str = "4h"
    node_status_update_frequency: str = "10s"
    node_status_report_frequency: str = "5m"
    node_lease_duration_seconds: int = 40
    node_status_max_images: int = 50
    image_minimum_gc_age: str = msgspec.field(default="2m", name="imageMinimumGCAge")
    image_maximum_gc_age: str = msgspec.field(default="0s", name="imageMaximumGCAge")
    image_gc_high_threshold_percent: int = msgspec.field(default=85, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: int = msgspec.field(default=80, name="imageGCLowThresholdPercent")
    cgroup_root: str = ""
    cgroups_per_qos: bool = msgspec.field(default=True, name="cgroupsPerQOS")
    cgroup_driver: str = "cgroupfs"
    runtime_request_timeout: str = "2m"
    max_pods: int = 110
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_pids_limit: int = -1
    pods_per_core: int = 0
    serialize_image_pulls: bool = True
    max_parallel_image_pulls: int | None = None
    image_pull_credentials_verification_policy: str = "NeverVerifyPreloadedImages"
    preloaded_images_verification_allowlist: list[str] = msgspec.field(default_factory=list)
    eviction_hard: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_soft: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_soft_grace_period: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_minimum_reclaim: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_pressure_transition_period: str = "5m"
    eviction_max_pod_grace_period: int = 0
    fail_swap_on: bool = True
    make_iptables_util_chains: bool = msgspec.field(default=True, name="makeIPTablesUtilChains")
    cpu_cfs_quota: bool = msgspec.field(default=True, name="cpuCFSQuota")
    cpu_cfs_quota_period: str = msgspec.field(default="100ms", name="cpuCFSQuotaPeriod")
    container_log_max_size: str = "10Mi"
    container_log_max_files: int = 5
    container_log_monitor_interval: str = "10s"
    kube_reserved: dict[str, str] = msgspec.field(default_factory=dict)
    system_reserved: dict[str, str] = msgspec.field(default_factory=dict)
    kube_reserved_cgroup: str = ""
    system_reserved_cgroup: str = ""
    enforce_node_allocatable: list[str] = msgspec.field(default_factory=lambda: ["pods"])
    memory_swap: MemorySwap = msgspec.field(default_factory=MemorySwap)
    single_process_oom_kill: bool | None = msgspec.field(default=None, name="singleProcessOOMKill")
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = msgspec.field(default_factory=dict)
    cpu_manager_reconcile_period: str = "10s"
    memory_manager_policy: str = "None"
    reserved_memory: list[MemoryReservation] = msgspec.field(default_factory=list)
    topology_manager_policy: str = "none"
    topology_manager_policy_options: dict[str, str] = msgspec.field(default_factory=dict)
    topology_manager_scope: str = "container"
    allowed_unsafe_sysctls: list[str] = msgspec.field(default_factory=list)
    register_node: bool = True
    register_with_taints: list[Taint] = msgspec.field(default_factory=list)
    seccomp_default: bool = False
    container_runtime_endpoint: str = "unix:///run/containerd/containerd.sock"
    image_service_endpoint: str = ""
    pod_logs_dir: str = "/var/log/pods"
    sync_frequency: str = "1m"
    provider_id: str = msgspec.field(default="", name="providerID")
    crash_loop_back_off: CrashLoopBackOff = msgspec.field(default_factory=CrashLoopBackOff)
    enable_server: bool = True
    enable_debugging_handlers: bool = True
    enable_system_log_handler: bool = True
    enable_system_log_query: bool = False
    enable_profiling_handler: bool = False
    """Upstream's default is on; there is no profiler behind it here."""
    enable_debug_flags_handler: bool = True
    user_namespaces: UserNamespaces = msgspec.field(default_factory=UserNamespaces)
    shutdown_grace_period: str = "0s"
    shutdown_grace_period_critical_pods: str = "0s"
    shutdown_grace_period_by_pod_priority: list[ShutdownGracePeriodByPodPriority] = msgspec.field(default_factory=list)
    logging: LoggingConfiguration = msgspec.field(default_factory=LoggingConfiguration)
    tracing: TracingConfiguration | None = None


def shown(setting: msgspec.Struct) -> dict[str, Any]:
    """Return all settings in JSON's shape, also those that have their default."""
    found: dict[str, Any] = {}
    for item in msgspec.structs.fields(setting):
        value = getattr(setting, item.name)
        if isinstance(value, msgspec.Struct):
            value = shown(value)
        elif isinstance(value, list):
            value = [shown(one) if isinstance(one, msgspec.Struct) else one for one in value]
        if value is not None:
            found[item.encode_name] = value
    return found


# Fields of the format that the agent accepts and does not act on.
_ACCEPTED = frozenset(
    """allocatableMemoryBackedVolumes configMapAndSecretChangeDetectionStrategy contentType
    enableContentionProfiling enableControllerAttachDetach
    eventBurst
    eventRecordQPS featureGates flushFrequency hairpinMode httpCheckFrequency
    imagePullProgressDeadline iptablesDropBit iptablesMasqueradeBit
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeletCgroups localStorageCapacityIsolation
    maxOpenFiles memoryReservationPolicy memoryThrottlingFactor
    mergeDefaultEvictionSettings oomScoreAdj protectKernelDefaults
    qosReserved registerPullQPS registryBurst registryPullQPS runOnce
    runtimeCgroups staticPodURL staticPodURLHeader systemCgroups
    tlsCurvePreferences volumePluginDir
    volumeStatsAggPeriod containerLogMaxWorkers""".split()
)


def parse(text: str, source: str = "KubeletConfiguration") -> tuple[KubeletConfiguration, list[str]]:
    """Decode YAML or JSON text; `source` names it in errors. Raise ConfigError."""
    return decode(document(text, source), source)


def document(text: str, source: str) -> dict[str, Any]:
    """Read a document of the kind; `source` names it in errors. Raise ConfigError."""
    try:
        read = decode_yaml(text) or {}
    except DamagedFileError as error:
        raise ConfigError(f"{source}: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{source}: expected a mapping, found {type(read).__name__}")
    kind = (read.get("apiVersion"), read.get("kind"))
    if kind != (_GROUP_VERSION, "KubeletConfiguration"):
        raise ConfigError(f"{source}: expected {_GROUP_VERSION} KubeletConfiguration, found {kind[0]} {kind[1]}")
    return read


def decode(given: dict[str, Any], source: str) -> tuple[KubeletConfiguration, list[str]]:
    """Return the settings and the names of accepted fields without effect. Raise ConfigError."""
    idle = sorted(name for name in given if name in _ACCEPTED)
    acted_on: dict[str, Any] = {
        name: value for name, value in given.items() if name not in _ACCEPTED and value is not None
    }
    try:
        return msgspec.convert(acted_on, KubeletConfiguration, strict=False), idle
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {decode_errors.sentence(error)}") from error


def seconds(name: str, text: str) -> float:
    """Read a Go duration such as 1m30s; `name` is the field in the ConfigError."""
    try:
        found = duration.parse(text)
    except ValueError:
        found = -1.0
    if found < 0:
        raise ConfigError(f"{name}: invalid duration {text!r}")
    return found
