"""Kubeconfigs of the administrator of a cluster for tests, with certificates and key in them."""

from __future__ import annotations

from datetime import datetime

from control.auth.user import SYSTEM_MASTERS, UserInfo
from kube import kubeconfig, pki, pki_layout

NAME = "wherry-testing"
"""Name of the cluster, of its user and of the context."""
ADMIN = UserInfo("kubernetes-admin", groups=(SYSTEM_MASTERS,))


def kubeconfig_text(url: str, keys: pki_layout.ClusterPKI, now: datetime) -> str:
    """Return a kubeconfig whose certificate is valid from a time on."""
    pair = pki.issue(keys.ca, ADMIN.name, ADMIN.groups, now=now, lifetime=pki.CA_LIFETIME)
    access = kubeconfig.Access(url, keys.ca.cert_pem, pair.cert_pem, pair.key_pem)
    return kubeconfig.render(access, cluster=NAME, user=NAME, context=NAME)
