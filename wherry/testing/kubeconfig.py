"""Kubeconfigs of the administrator of a cluster for tests, with certificates and key in them."""

from __future__ import annotations

import base64
from datetime import datetime

import yaml

from control.auth.user import SYSTEM_MASTERS, UserInfo
from kube import pki, pki_layout

CONTEXT = "wherry-testing"
"""Name of the context."""
ADMIN = UserInfo("kubernetes-admin", groups=(SYSTEM_MASTERS,))


def kubeconfig_text(url: str, keys: pki_layout.ClusterPKI, now: datetime) -> str:
    """Return a kubeconfig whose certificate is valid from a time on."""
    pair = pki.issue(keys.ca, ADMIN.name, ADMIN.groups, now=now, lifetime=pki.CA_LIFETIME)
    cluster = {"server": url, "certificate-authority-data": _base64(keys.ca.cert_pem)}
    user = {"client-certificate-data": _base64(pair.cert_pem), "client-key-data": _base64(pair.key_pem)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
