"""The control plane's configuration on a machine that Wherry set up."""

from __future__ import annotations

from pathlib import Path

import msgspec

from control import addon_names
from control.config import ControlConfig
from kube.tracing import configuration as tracing
from wherry import api_server_flags, defaults
from wherry.errors import WherryError
from wherry.settings import Settings


def control_config(settings: Settings) -> ControlConfig:
    layout = settings.layout
    keys = layout.pki
    config = ControlConfig(
        data_dir=layout.state / "control",
        cert_file=keys / "apiserver.crt",
        key_file=keys / "apiserver.key",
        client_ca_file=keys / "ca.crt",
        ca_file=keys / "ca.crt",
        ca_key_file=keys / "ca.key",
        service_account_key_file=keys / "sa.key",
        kubelet_client_cert_file=keys / "apiserver-kubelet-client.crt",
        proxy_client_cert_file=keys / "front-proxy-client.crt",
        proxy_client_key_file=keys / "front-proxy-client.key",
        requestheader_client_ca_file=keys / "front-proxy-ca.crt",
        kubelet_client_key_file=keys / "apiserver-kubelet-client.key",
        kubelet_ca_file=keys / "ca.crt",
        service_account_extend_token_expiration=defaults.EXTEND_TOKEN_EXPIRATION,
        port=settings.api_port,
        controller_manager_port=settings.controller_manager_port,
        scheduler_port=settings.scheduler_port,
        service_load_balancer=settings.load_balancer_enabled,
        load_balancer_ports=settings.load_balancer_ports,
        local_path_volumes=addon_names.LOCAL_PATH not in settings.disable,
        resource_metrics=addon_names.METRICS not in settings.disable,
        gateway=addon_names.GATEWAY not in settings.disable,
        addons_dir=layout.addons,
        disabled_addons=tuple(settings.disable),
        advertise_address=settings.node_ip,
        service_cidr=settings.service_cidr,
        pod_cidr=settings.pod_cidr,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.dns_addresses[0] if settings.dns_addresses else "",
        store=settings.store,
        etcd_servers=tuple(server.strip() for server in settings.etcd_servers.split(",") if server.strip()),
        etcd_ca_file=_named(settings.etcd_cafile),
        etcd_cert_file=_named(settings.etcd_certfile),
        etcd_key_file=_named(settings.etcd_keyfile),
        etcd_prefix=settings.etcd_prefix,
        authentication_config_file=_present(layout.etc / "authentication.yaml"),
        authentication_webhook_file=_present(layout.etc / "authentication-webhook.kubeconfig"),
        authorization_config_file=_present(layout.etc / "authorization.yaml"),
        token_file=_present(layout.etc / "tokens.csv"),
        audit_policy_file=_present(layout.etc / "audit-policy.yaml") or defaults.AUDIT_POLICY,
        audit_webhook_file=_present(layout.etc / "audit-webhook.kubeconfig"),
        audit_log_file=layout.logs / "audit.log",
        audit_log_max_age=defaults.AUDIT_LOG_MAX_AGE,
        encryption_config_file=_present(layout.etc / "encryption.yaml"),
        admission_config_file=_present(layout.etc / "admission.yaml"),
        default_admission=defaults.ADMISSION,
        authorization_policy_file=_present(layout.etc / "abac-policy.jsonl"),
        authorization_webhook_file=_present(layout.etc / "authorization-webhook.kubeconfig"),
        controller_config_file=_present(layout.etc / "controller-manager.yaml"),
        scheduler_config_file=_present(layout.etc / "scheduler.yaml"),
        tracing_config_file=_present(layout.etc / "tracing.yaml"),
        tracing=settings.tracing,
    )
    _check_tracing(config)
    return msgspec.structs.replace(config, **api_server_flags.load(layout.etc / "apiserver.yaml"))


def _check_tracing(config: ControlConfig) -> None:
    """Raise WherryError for an invalid file, before anything is started."""
    try:
        if config.tracing_config_file is not None:
            tracing.load(config.tracing_config_file)
    except tracing.TracingError as error:
        raise WherryError(str(error)) from error


def _present(path: Path) -> Path | None:
    """Return an optional file's path where an administrator has put the file."""
    return path if path.exists() else None


def _named(path: str) -> Path | None:
    return Path(path) if path else None
