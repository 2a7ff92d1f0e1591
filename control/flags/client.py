"""Flags that kube-controller-manager and kube-scheduler share: kubeconfig, leader election, health checks."""

from __future__ import annotations

from control.flags.kinds import BOOL, CIPHER_SUITES, GATES, NUMBER, PATH, TEXT, TLS_VERSION, Kind

SERVING: dict[str, tuple[str, Kind]] = {
    "bind-address": ("bind_address", TEXT),
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

_SERVED = "only health is served there, and that is open to everybody, as upstream's is"
FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "authentication-kubeconfig": ((), _SERVED),
    "authorization-always-allow-paths": ((), _SERVED),
    "authorization-kubeconfig": ((), _SERVED),
    "client-ca-file": ((), _SERVED),
    "requestheader-client-ca-file": ((), _SERVED),
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
