"""Builds the agent's settings from upstream's configuration file and flags, and validates them.

Contradictions are refused in upstream's words, with the field's name, before anything is started.
"""

from __future__ import annotations

import os
import socket
from dataclasses import fields
from pathlib import Path

from agent.cgroups.cgroupfs import is_v2
from agent.cgroups.node_allocatable import read as read_enforcement
from agent.cgroups.swap import LIMITED_SWAP, NO_SWAP
from agent.config import (
    DEFAULT_EVICTION_HARD,
    AccessSettings,
    AgentConfig,
    EnabledHandlers,
    EvictionSettings,
    ImageSettings,
    LogSettings,
)
from agent.configuration_files import load
from agent.flags import Flags, labels, taints
from agent.images.verification import POLICIES
from agent.kubelet_configuration import ConfigError, KubeletConfiguration, seconds
from agent.managers.options import read as read_manager_options
from agent.podspec.userns import LENGTH
from agent.shutdown.periods import read as read_shutdown_periods
from kube import tls_settings
from kube.quantity import parse as parse_quantity
from kube.tracing import configuration as tracing


def from_flags(flags: Flags) -> AgentConfig:
    """Build the settings from flags, the file of --config and the folder of --config-dir; flags win. Raise ConfigError."""
    file, idle = load(_path(flags.config), _path(flags.config_dir))
    return build(file, flags, tuple(idle))


def build(file: KubeletConfiguration, flags: Flags, not_acted_on: tuple[str, ...] = ()) -> AgentConfig:
    """Merge a decoded file and flags into the agent's settings. Raise ConfigError naming the field."""
    _check(file, flags)
    root = Path(flags.root_dir)
    hostname = socket.gethostname().strip().lower()
    cipher_suites, tls_min_version = _tls(file)
    given = flags.register_with_taints
    registered_with = taints(given) if given else tuple(file.register_with_taints)
    x509 = file.authentication.x509
    return AgentConfig(
        node_name=flags.hostname_override.strip().lower() or hostname,
        hostname=hostname,
        kubeconfig=_path(flags.kubeconfig),
        bootstrap_kubeconfig=_path(flags.bootstrap_kubeconfig),
        root_dir=root,
        cert_dir=_path(flags.cert_dir) or root / "pki",
        pod_logs_dir=Path(file.pod_logs_dir),
        container_logs_dir=Path(flags.container_logs_dir),
        seccomp_profile_root=root / "seccomp",
        static_pod_path=_path(file.static_pod_path),
        runtime_endpoint=file.container_runtime_endpoint,
        image_endpoint=file.image_service_endpoint,
        runtime_request_timeout=seconds("runtimeRequestTimeout", file.runtime_request_timeout),
        node_ips=tuple(ip.strip() for ip in flags.node_ip.split(",") if ip.strip()),
        node_labels=labels(flags.node_labels),
        taints=registered_with,
        provider_id=file.provider_id,
        register_node=file.register_node,
        max_pods=min(file.max_pods, file.pods_per_core * (os.cpu_count() or 1) or file.max_pods),
        pod_pids_limit=file.pod_pids_limit,
        address=file.address,
        port=file.port,
        tls_cert_file=_path(file.tls_cert_file),
        tls_private_key_file=_path(file.tls_private_key_file),
        tls_cipher_suites=cipher_suites,
        tls_min_version=tls_min_version,
        client_ca_file=_path(x509.client_ca_file),
        access=_access(file),
        rotate_certificates=file.rotate_certificates,
        server_tls_bootstrap=file.server_tls_bootstrap,
        healthz_address=file.healthz_bind_address,
        healthz_port=file.healthz_port,
        streaming_idle_timeout=seconds("streamingConnectionIdleTimeout", file.streaming_connection_idle_timeout),
        enable_server=file.enable_server,
        handlers=_handlers(file),
        flags={item.name.replace("_", "-"): str(getattr(flags, item.name)) for item in fields(flags)},
        cluster_dns=tuple(file.cluster_dns),
        cluster_domain=file.cluster_domain,
        resolv_conf="/etc/resolv.conf" if file.resolv_conf is None else file.resolv_conf,
        status_update_period=seconds("nodeStatusUpdateFrequency", file.node_status_update_frequency),
        status_report_period=seconds("nodeStatusReportFrequency", file.node_status_report_frequency),
        lease_duration=file.node_lease_duration_seconds,
        status_max_images=file.node_status_max_images,
        sync_period=seconds("syncFrequency", file.sync_frequency),
        cgroup_root=file.cgroup_root or "/",
        cgroup_driver=file.cgroup_driver,
        cgroups_per_qos=file.cgroups_per_qos,
        cpu_cfs_quota=file.cpu_cfs_quota,
        cpu_cfs_period=seconds("cpuCFSQuotaPeriod", file.cpu_cfs_quota_period),
        kube_reserved=file.kube_reserved,
        system_reserved=file.system_reserved,
        managers=read_manager_options(file),
        enforcement=read_enforcement(file),
        swap_behavior=_swap_behavior(file),
        single_process_oom_kill=_single_process_oom_kill(file),
        eviction=_eviction(file),
        fail_swap_on=file.fail_swap_on,
        loopback_guard=file.make_iptables_util_chains,
        seccomp_default=file.seccomp_default,
        allowed_unsafe_sysctls=tuple(file.allowed_unsafe_sysctls),
        images=_images(file, flags),
        logs=_logs(file),
        back_off_max=seconds("crashLoopBackOff", file.crash_loop_back_off.max_container_restart_period),
        ids_per_pod=file.user_namespaces.ids_per_pod,
        shutdown_periods=read_shutdown_periods(file),
        file=file,
        not_acted_on=not_acted_on,
    )


def _access(file: KubeletConfiguration) -> AccessSettings:
    return AccessSettings(
        anonymous=file.authentication.anonymous.enabled,
        webhook=file.authentication.webhook.enabled,
        authorization_mode=file.authorization.mode,
        authentication_cache=seconds("authentication.webhook.cacheTTL", file.authentication.webhook.cache_ttl),
        authorized_cache=seconds("cacheAuthorizedTTL", file.authorization.webhook.cache_authorized_ttl),
        unauthorized_cache=seconds("cacheUnauthorizedTTL", file.authorization.webhook.cache_unauthorized_ttl),
    )


def _handlers(file: KubeletConfiguration) -> EnabledHandlers:
    return EnabledHandlers(
        debugging=file.enable_debugging_handlers,
        system_logs=file.enable_system_log_handler,
        system_log_queries=file.enable_system_log_query,
        profiling=file.enable_profiling_handler,
        flags=file.enable_debug_flags_handler,
    )


def _eviction(file: KubeletConfiguration) -> EvictionSettings:
    return EvictionSettings(
        hard=file.eviction_hard or DEFAULT_EVICTION_HARD,
        soft=file.eviction_soft,
        soft_grace={
            signal: seconds(f"evictionSoftGracePeriod[{signal}]", text)
            for signal, text in file.eviction_soft_grace_period.items()
        },
        minimum_reclaim=file.eviction_minimum_reclaim,
        max_pod_grace=file.eviction_max_pod_grace_period,
        pressure_transition=seconds("evictionPressureTransitionPeriod", file.eviction_pressure_transition_period),
    )


def _images(file: KubeletConfiguration, flags: Flags) -> ImageSettings:
    return ImageSettings(
        serialize_pulls=file.serialize_image_pulls,
        max_parallel_pulls=file.max_parallel_image_pulls or 0,
        verification=file.image_pull_credentials_verification_policy,
        allowlist=tuple(file.preloaded_images_verification_allowlist),
        credential_providers=_path(flags.image_credential_provider_config),
        credential_provider_dir=_path(flags.image_credential_provider_bin_dir),
        gc_high_percent=file.image_gc_high_threshold_percent,
        gc_low_percent=file.image_gc_low_threshold_percent,
        maximum_age=seconds("imageMaximumGCAge", file.image_maximum_gc_age),
        minimum_age=seconds("imageMinimumGCAge", file.image_minimum_gc_age),
    )


def _logs(file: KubeletConfiguration) -> LogSettings:
    return LogSettings(
        max_bytes=int(parse_quantity(file.container_log_max_size)),
        max_files=file.container_log_max_files,
        check_period=seconds("containerLogMonitorInterval", file.container_log_monitor_interval),
    )


def _check(file: KubeletConfiguration, flags: Flags) -> None:
    """Raise ConfigError for the first setting that is invalid, or contradicts another."""
    if file.cgroup_driver not in ("cgroupfs", "systemd"):
        raise ConfigError(f'cgroupDriver: expected "cgroupfs" or "systemd", found {file.cgroup_driver!r}')
    if file.authorization.mode not in ("Webhook", "AlwaysAllow"):
        raise ConfigError(f'authorization.mode: expected "Webhook" or "AlwaysAllow", found {file.authorization.mode!r}')
    if file.image_gc_low_threshold_percent >= file.image_gc_high_threshold_percent:
        raise ConfigError("imageGCLowThresholdPercent must be less than imageGCHighThresholdPercent")
    if file.image_pull_credentials_verification_policy not in POLICIES:
        raise ConfigError(f"imagePullCredentialsVerificationPolicy: expected one of {', '.join(POLICIES)}")
    if file.user_namespaces.ids_per_pod % LENGTH or not LENGTH <= file.user_namespaces.ids_per_pod < 1 << 32:
        raise ConfigError("userNamespaces.idsPerPod must be a multiple of 65536 and less than 2^32")
    for name, given in (("logging.format", file.logging.format), ("--logging-format", flags.logging_format or "text")):
        if given not in ("text", "json"):
            raise ConfigError(f'{name}: Invalid value: "{given}": Unsupported log format')
    if file.tracing is not None and (found := tracing.problems(file.tracing, "tracing")):
        raise ConfigError(f"invalid configuration: {', '.join(found)}")
    if bool(flags.image_credential_provider_config) != bool(flags.image_credential_provider_bin_dir):
        raise ConfigError(
            "both --image-credential-provider-config and --image-credential-provider-bin-dir need to be set"
        )


def _tls(file: KubeletConfiguration) -> tuple[tuple[str, ...], str]:
    """Read the cipher suites and the minimum version of the kubelet port. Raise ConfigError."""
    try:
        return tls_settings.check_suites(file.tls_cipher_suites), tls_settings.check_version(file.tls_min_version)
    except ValueError as error:
        raise ConfigError(f"tlsCipherSuites, tlsMinVersion: {error}") from error


def _swap_behavior(file: KubeletConfiguration) -> str:
    given = file.memory_swap.swap_behavior
    if given not in ("", NO_SWAP, LIMITED_SWAP):
        raise ConfigError(
            f'invalid configuration: memorySwap.swapBehavior "{given}" must be one of: "", "LimitedSwap" or "NoSwap"'
        )
    return given or NO_SWAP


def _single_process_oom_kill(file: KubeletConfiguration) -> bool:
    """Read whether the kernel kills a container's processes one by one: cgroup v1 cannot but do so."""
    if file.single_process_oom_kill is False and not is_v2():
        raise ConfigError(
            "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1"
        )
    return not is_v2() if file.single_process_oom_kill is None else file.single_process_oom_kill


def _path(text: str) -> Path | None:
    return Path(text) if text else None
