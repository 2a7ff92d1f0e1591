"""Flags that kube-controller-manager and kube-scheduler share: kubeconfig, leader election, port of health and metrics."""

from __future__ import annotations

from control.flags.kinds import BOOL, CIPHER_SUITES, GATES, NAMES, NUMBER, PATH, TEXT, TLS_VERSION, Kind

SERVING: dict[str, tuple[str, Kind]] = {
    "authentication-kubeconfig": ("authentication_kubeconfig", PATH),
    "authorization-always-allow-paths": ("open_paths", NAMES),
    "authorization-kubeconfig": ("authorization_kubeconfig", PATH),
    "bind-address": ("bind_address", TEXT),
    "client-ca-file": ("client_ca_file", PATH),
    "config": ("config", PATH),
    "feature-gates": ("feature_gates", GATES),
    "kubeconfig": ("kubeconfig", PATH),
    "leader-elect": ("leader_elect", BOOL),
    "leader-elect-resource-name": ("lease_name", TEXT),
    "leader-elect-resource-namespace": ("lease_namespace", TEXT),
    "secure-port": ("port", NUMBER),
    "tls-cert-file": ("cert_file", PATH),
    "tls-cipher-suites": ("tls_cipher_suites", CIPHER_SUITES),
    "tls-min-version": ("tls_min_version", TLS_VERSION),
    "tls-private-key-file": ("key_file", PATH),
}

_REVIEWS = "answers are cached for 10 s"
_LOOKUP = "authorities of client certificates come from --client-ca-file only"
FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "authentication-skip-lookup": ((), _LOOKUP),
    "authentication-token-webhook-cache-ttl": (("10s", "10"), _REVIEWS),
    "authentication-tolerate-lookup-failure": ((), _LOOKUP),
    "authorization-webhook-cache-authorized-ttl": (("10s", "10"), _REVIEWS),
    "authorization-webhook-cache-unauthorized-ttl": (("10s", "10"), _REVIEWS),
    "requestheader-client-ca-file": ((), "clients of this port have certificates or tokens of their own"),
    "contention-profiling": (("false",), "there is no profiler"),
    "kube-api-burst": ((), "requests are not held back by their client"),
    "kube-api-content-type": ((), "JSON is spoken"),
    "kube-api-qps": ((), "requests are not held back by their client"),
    "leader-elect-lease-duration": (("15s",), "a lease lasts 15 s, is renewed within 10 s and tried for every 2 s"),
    "leader-elect-renew-deadline": (("10s",), "a lease lasts 15 s, is renewed within 10 s and tried for every 2 s"),
    "leader-elect-resource-lock": (("leases",), "leaders hold leases"),
    "leader-elect-retry-period": (("2s",), "a lease lasts 15 s, is renewed within 10 s and tried for every 2 s"),
    "profiling": (("false",), "there is no profiler"),
}
