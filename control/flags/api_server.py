"""kube-apiserver's flags: each is a field of ControlConfig, or one that Wherry's behaviour has an answer to already.

The latter (FIXED) are taken where they ask for what is so anyway, so that a command line can stay as it is, and refused
with the reason where they ask for something else.
"""

from __future__ import annotations

from control.flags.kinds import (
    BOOL,
    DURATION,
    FLOAT,
    GATES,
    NAMES,
    NETWORKS,
    NUMBER,
    PATH,
    PORTS,
    SECONDS,
    TEXT,
    WHOLE_SECONDS,
    Kind,
    one_of,
    times,
)

MODES = ("Node", "RBAC", "Webhook", "ABAC", "AlwaysAllow", "AlwaysDeny")

SETTINGS: dict[str, tuple[str, Kind]] = {
    "anonymous-auth": ("anonymous_auth", BOOL),
    "api-audiences": ("api_audiences", NAMES),
    "audit-log-maxage": ("audit_log_max_age", times(24 * 3600)),
    "audit-log-maxbackup": ("audit_log_backups", NUMBER),
    "audit-log-maxsize": ("audit_log_max_bytes", times(1024 * 1024)),
    "audit-webhook-batch-buffer-size": ("audit_webhook_batch_buffer_size", NUMBER),
    "audit-webhook-batch-max-size": ("audit_webhook_batch_max_size", NUMBER),
    "audit-webhook-batch-max-wait": ("audit_webhook_batch_max_wait", DURATION),
    "audit-webhook-batch-throttle-burst": ("audit_webhook_batch_throttle_burst", NUMBER),
    "audit-webhook-batch-throttle-qps": ("audit_webhook_batch_throttle_qps", FLOAT),
    "audit-webhook-initial-backoff": ("audit_webhook_initial_backoff", DURATION),
    "audit-webhook-mode": ("audit_webhook_mode", one_of("batch", "blocking", "blocking-strict")),
    "authentication-token-webhook-cache-ttl": ("authentication_webhook_cache_ttl", DURATION),
    "authentication-token-webhook-version": ("authentication_webhook_version", one_of("v1", "v1beta1")),
    "authorization-mode": ("authorization_modes", NAMES),
    "authorization-webhook-cache-authorized-ttl": ("authorization_webhook_authorized_ttl", DURATION),
    "authorization-webhook-cache-unauthorized-ttl": ("authorization_webhook_unauthorized_ttl", DURATION),
    "authorization-webhook-version": ("authorization_webhook_version", one_of("v1", "v1beta1")),
    "default-not-ready-toleration-seconds": ("not_ready_toleration_seconds", NUMBER),
    "default-unreachable-toleration-seconds": ("unreachable_toleration_seconds", NUMBER),
    "disable-admission-plugins": ("disabled_admission", NAMES),
    "enable-admission-plugins": ("enabled_admission", NAMES),
    "event-ttl": ("event_ttl", WHOLE_SECONDS),
    "feature-gates": ("feature_gates", GATES),
    "kubelet-timeout": ("kubelet_timeout", DURATION),
    "max-mutating-requests-inflight": ("max_mutating_in_flight", NUMBER),
    "max-requests-inflight": ("max_readonly_in_flight", NUMBER),
    "min-request-timeout": ("min_watch_timeout", SECONDS),
    "request-timeout": ("request_timeout", DURATION),
    "requestheader-allowed-names": ("requestheader_allowed_names", NAMES),
    "requestheader-extra-headers-prefix": ("requestheader_extra_headers_prefix", NAMES),
    "requestheader-group-headers": ("requestheader_group_headers", NAMES),
    "requestheader-uid-headers": ("requestheader_uid_headers", NAMES),
    "requestheader-username-headers": ("requestheader_username_headers", NAMES),
    "service-account-issuer": ("service_account_issuer", TEXT),
    "service-node-port-range": ("node_port_range", PORTS),
    "shutdown-delay-duration": ("shutdown_delay", DURATION),
}
"""What stands in /etc/wherry/apiserver.yaml too."""

PLACES: dict[str, tuple[str, Kind]] = {
    "admission-control-config-file": ("admission_config_file", PATH),
    "advertise-address": ("advertise_address", TEXT),
    "audit-log-path": ("audit_log_file", PATH),
    "audit-policy-file": ("audit_policy_file", PATH),
    "audit-webhook-config-file": ("audit_webhook_file", PATH),
    "authentication-config": ("authentication_config_file", PATH),
    "authentication-token-webhook-config-file": ("authentication_webhook_file", PATH),
    "authorization-config": ("authorization_config_file", PATH),
    "authorization-policy-file": ("authorization_policy_file", PATH),
    "authorization-webhook-config-file": ("authorization_webhook_file", PATH),
    "bind-address": ("bind_address", TEXT),
    "client-ca-file": ("client_ca_file", PATH),
    "encryption-provider-config": ("encryption_config_file", PATH),
    "etcd-cafile": ("etcd_ca_file", PATH),
    "etcd-certfile": ("etcd_cert_file", PATH),
    "etcd-keyfile": ("etcd_key_file", PATH),
    "etcd-prefix": ("etcd_prefix", TEXT),
    "etcd-servers": ("etcd_servers", NAMES),
    "kubelet-certificate-authority": ("kubelet_ca_file", PATH),
    "kubelet-client-certificate": ("kubelet_client_cert_file", PATH),
    "kubelet-client-key": ("kubelet_client_key_file", PATH),
    "proxy-client-cert-file": ("proxy_client_cert_file", PATH),
    "proxy-client-key-file": ("proxy_client_key_file", PATH),
    "requestheader-client-ca-file": ("requestheader_client_ca_file", PATH),
    "secure-port": ("port", NUMBER),
    "service-account-key-file": ("service_account_public_key_file", PATH),
    "service-account-signing-key-file": ("service_account_key_file", PATH),
    "service-cluster-ip-range": ("service_cidr", NETWORKS),
    "tls-cert-file": ("cert_file", PATH),
    "tls-private-key-file": ("key_file", PATH),
    "token-auth-file": ("token_file", PATH),
}
"""Addresses and files, which on a machine that Wherry set up have places of their own."""

FLAGS = SETTINGS | PLACES

FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "allow-privileged": (("true",), "pods may be privileged unless an admission plugin says no"),
    "apiserver-count": (("1", "2", "3"), "servers find each other by leases"),
    "audit-log-format": (("json",), "the audit log is JSON"),
    "audit-log-mode": (("batch",), "the audit log is written beside the requests, none of which waits for it"),
    "contention-profiling": (("false",), "there is no profiler"),
    "delete-collection-workers": ((), "as many as there is work for"),
    "enable-aggregator-routing": (("true", "false"), "extension servers are reached at their endpoints always"),
    "enable-bootstrap-token-auth": (("true",), "bootstrap tokens are always taken"),
    "enable-garbage-collector": (("true",), "there is always one"),
    "enable-priority-and-fairness": (("true",), "it is always on"),
    "encryption-provider-config-automatic-reload": (("true", "false"), "the file is always followed"),
    "endpoint-reconciler-type": (("lease",), "servers find each other by leases"),
    "goaway-chance": (("0",), "there is no HTTP/2 here that could be told to go away"),
    "kubelet-preferred-address-types": ((), "a node's InternalIP is dialled first"),
    "profiling": (("false",), "there is no profiler"),
    "service-account-extend-token-expiration": (("false",), "a token lives as long as it says"),
    "service-account-lookup": (("true",), "tokens of accounts that are gone are never believed"),
    "storage-backend": (("etcd3",), "with --etcd-servers it is etcd, without it SQLite"),
    "storage-media-type": (
        ("application/json", "application/vnd.kubernetes.protobuf"),
        "objects are stored as JSON; upstream's server reads both",
    ),
    "tls-min-version": (("VersionTLS12",), "TLS 1.2 and 1.3 are served"),
    "watch-cache": (("true",), "everything is served from the watch cache"),
}
"""Flags whose answer stands: which values say what is so anyway (none named: every value), and why no other is taken."""
