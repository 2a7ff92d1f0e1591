"""The control plane's configuration: one immutable value, created at the entry point and passed to all parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kube.port_ranges import LOAD_BALANCERS
from kube.serving.limits import ServingLimits
from kube.tracing.configuration import TracingConfiguration


class ControlConfig(msgspec.Struct, frozen=True):
    """Addresses, paths and trusted authorities of the API server. Times are seconds."""

    data_dir: Path
    cert_file: Path
    key_file: Path
    client_ca_file: Path
    """Certificate authorities of client certificates."""
    service_account_key_file: Path
    """The private key that signs service account tokens; its public half checks them."""
    service_account_public_key_file: Path | None = None
    """Further keys, private or public, whose tokens are believed, as after a rotation; None: none."""
    ca_file: Path | None = None
    """The CA that clients and pods check the server with (kube-root-ca.crt); None: the client CA."""
    ca_key_file: Path | None = None
    """Signs certificate requests (controllers); None: they are not signed."""
    bind_address: str = "0.0.0.0"
    port: int = 6443
    tls_cipher_suites: tuple[str, ...] = ()
    """Those of TLS 1.2, by Go's names (kube.tls_settings); empty: those with forward secrecy and authentication."""
    tls_min_version: str = "VersionTLS12"
    advertise_address: str = ""
    """Endpoint of the `kubernetes` Service; empty: the bind address where that is one, else none."""
    kubelet_client_cert_file: Path | None = None
    kubelet_client_key_file: Path | None = None
    kubelet_ca_file: Path | None = None
    """Checks the serving certificates of nodes; None: the client CA."""
    kubelet_timeout: float = 10.0
    proxy_client_cert_file: Path | None = None
    """Client certificate for extension API servers, which then trust the user headers; None: they cannot authenticate users."""
    proxy_client_key_file: Path | None = None
    requestheader_client_ca_file: Path | None = None
    """Signs that certificate; published for extension servers to check it, and believed by this server of other proxies."""
    requestheader_allowed_names: tuple[str, ...] = ("front-proxy-client",)
    """Common names of trusted front proxies; empty: all that the authority signed."""
    requestheader_username_headers: tuple[str, ...] = ("X-Remote-User",)
    requestheader_uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    requestheader_group_headers: tuple[str, ...] = ("X-Remote-Group",)
    requestheader_extra_headers_prefix: tuple[str, ...] = ("X-Remote-Extra-",)
    service_account_issuer: str = "https://kubernetes.default.svc.cluster.local"
    service_account_extend_token_expiration: bool = True
    """Tokens that kubelets request for pods are valid for a year, for clients that read theirs once; False: an hour."""
    api_audiences: tuple[str, ...] = ("https://kubernetes.default.svc.cluster.local",)
    service_cidr: str = "10.96.0.0/12"
    node_port_range: tuple[int, int] = (30000, 32767)
    pod_cidr: str = "10.244.0.0/16"
    node_cidr_mask: int = 24
    cluster_domain: str = "cluster.local"
    cluster_dns: str = "10.96.0.10"
    anonymous_auth: bool = False
    """Let requests without credentials through as system:anonymous; health is open to all in any case."""
    authentication_config_file: Path | None = None
    """Issuers of ID tokens and who may be anonymous (AuthenticationConfiguration); None: none, and `anonymous_auth`."""
    oidc_issuer_url: str = ""
    """One issuer of ID tokens, as kube-apiserver's flags name it, in place of that file; empty: none."""
    oidc_client_id: str = ""
    oidc_username_claim: str = "sub"
    oidc_username_prefix: str = ""
    oidc_groups_claim: str = ""
    oidc_groups_prefix: str = ""
    oidc_ca_file: Path | None = None
    oidc_required_claim: dict[str, str] = msgspec.field(default_factory=dict)
    token_file: Path | None = None
    """Static tokens, a line `token,user,uid,"group1,group2"` each; None: none."""
    authentication_webhook_file: Path | None = None
    """Kubeconfig of the token webhook (TokenReview); None: there is none."""
    authentication_webhook_version: str = "v1"
    authentication_webhook_cache_ttl: float = 120.0
    authorization_config_file: Path | None = None
    """The authorizers (AuthorizationConfiguration); None: those of `authorization_modes`."""
    authorization_modes: tuple[str, ...] = ("Node", "RBAC")
    authorization_policy_file: Path | None = None
    """Policy of the authorization mode ABAC, a rule in JSON on each line."""
    authorization_webhook_file: Path | None = None
    """Kubeconfig of the webhook of the mode Webhook."""
    authorization_webhook_version: str = "v1beta1"
    authorization_webhook_authorized_ttl: float = 300.0
    authorization_webhook_unauthorized_ttl: float = 30.0
    configuration_check: float = 1.0
    """Seconds between two looks at whether one of the configuration files has changed."""
    max_readonly_in_flight: int = 400
    max_mutating_in_flight: int = 200
    request_timeout: float = 60.0
    min_watch_timeout: float = 1800.0
    shutdown_delay: float = 0.0
    """Seconds between saying that the server is going (/readyz fails) and accepting no more connections."""
    shutdown_timeout: float = 10.0
    tracing_config_file: Path | None = None
    """Collector and sampling rate of spans (TracingConfiguration); None: those of `tracing`."""
    tracing: TracingConfiguration | None = None
    """The same as a value; None: nothing is traced."""
    event_ttl: int = 3600
    journal_bytes: int = 20 << 20
    """Memory of the journal of decisions that `wherry why` reads; 0: there is none."""
    serving: ServingLimits = msgspec.field(default_factory=ServingLimits)
    """Limits of connections, of requests' heads and of clients that are slow."""
    max_body_bytes: int = 3 * 1024 * 1024
    """Limit of a request's body (413 above)."""
    max_object_bytes: int = 1536 * 1024
    """Limit of an object in the store, as etcd's."""
    store: str = "sqlite"
    """The engine that objects are kept in: sqlite, a file of this server's, etcd, which servers share, or memory."""
    etcd_servers: tuple[str, ...] = ()
    """The members' URLs, as https://10.0.0.1:2379."""
    etcd_ca_file: Path | None = None
    etcd_cert_file: Path | None = None
    etcd_key_file: Path | None = None
    etcd_prefix: str = "/registry"
    disabled_admission: tuple[str, ...] = ()
    enabled_admission: tuple[str, ...] = ()
    """Plugins that are off unless they are named, as upstream's --enable-admission-plugins."""
    default_admission: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Plugins that are on beside upstream's unless disabled, and their configurations unless the file has others."""
    admission_config_file: Path | None = None
    """Configuration of plugins (AdmissionConfiguration); None: none."""
    not_ready_toleration_seconds: int = 300
    unreachable_toleration_seconds: int = 300
    encryption_config_file: Path | None = None
    """EncryptionConfiguration: the resources that are encrypted in the store; None: none are."""
    audit_policy_file: Path | None = None
    """Audit policy (audit.k8s.io/v1 Policy); None: there is no audit log."""
    audit_log_file: Path | None = None
    """Path of the audit log; None: audit.log in the data directory."""
    audit_log_max_bytes: int = 100 * 1024 * 1024
    audit_log_backups: int = 10
    audit_log_max_age: int = 0
    """Seconds after which rotated logs are deleted; 0: never."""
    audit_webhook_file: Path | None = None
    """A kubeconfig of the program that audit events are posted to; None: none is."""
    audit_webhook_mode: str = "batch"
    """batch, blocking (requests wait for their events) or blocking-strict (and are refused where that fails)."""
    audit_webhook_initial_backoff: float = 10.0
    audit_webhook_batch_buffer_size: int = 10_000
    audit_webhook_batch_max_size: int = 400
    audit_webhook_batch_max_wait: float = 30.0
    audit_webhook_batch_throttle_qps: float = 10.0
    audit_webhook_batch_throttle_burst: int = 15
    controller_config_file: Path | None = None
    """Upstream's KubeControllerManagerConfiguration (see control.controllers.configuration); None: its defaults."""
    scheduler_config_file: Path | None = None
    """Upstream's KubeSchedulerConfiguration; None: its defaults."""
    service_load_balancer: bool = True
    """Give Services of type LoadBalancer the nodes' addresses; off where another load balancer serves the cluster."""
    load_balancer_ports: str = LOAD_BALANCERS
    """The ports that they may have there, as kube.port_ranges reads them."""
    local_path_volumes: bool = True
    """True if claims can be folders on nodes; the class local-path is made where there is no storage class at all."""
    resource_metrics: bool = True
    """Serve metrics.k8s.io; off where another server does."""
    gateway: bool = False
    """Serve the Gateway API and Ingresses: install its definitions, and generate objects for the gateways of the nodes."""
    addons_dir: Path | None = None
    """The folder of manifests that the controllers apply; None: there is none."""
    disabled_addons: tuple[str, ...] = ()
    """Addons of that folder that are not applied."""
    enable_controllers: bool = True
    enable_scheduler: bool = True
    controller_manager_port: int = 0
    """Port of the controllers' health, metrics and configuration on 127.0.0.1; 0: none."""
    scheduler_port: int = 0
    """The same of the scheduler."""
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.data_dir / "state.db"

    @property
    def serving_ca_file(self) -> Path:
        return self.ca_file or self.client_ca_file
