"""The files that the roles read: upstream's own configuration kinds, and a kubeconfig for each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import yaml

from kube import kubeconfig, pki, pki_layout
from kube.clock import SYSTEM
from wherry.settings import Settings

ADMIN_GROUP = "system:masters"


def kubelet_configuration(settings: Settings) -> dict[str, Any]:
    """Return the KubeletConfiguration of this node."""
    layout = settings.layout
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": settings.kubelet_port,
        "healthzPort": settings.kubelet_healthz_port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.kubelet / "pki" / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.kubelet / "pki" / "kubelet.key"),
        "clusterDNS": [settings.cluster_dns],
        "clusterDomain": settings.cluster_domain,
        "containerRuntimeEndpoint": settings.runtime,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": layout.cgroup,
        "podLogsDir": str(layout.pod_logs),
        "resolvConf": settings.resolv_conf,
        "staticPodPath": str(layout.etc / "manifests"),
        "maxPods": settings.max_pods,
        "seccompDefault": True,
        "failSwapOn": False,
    }


def proxy_configuration(settings: Settings) -> dict[str, Any]:
    """Return the KubeProxyConfiguration of this node."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(settings.layout.netproxy_kubeconfig)},
        "mode": settings.proxy_mode,
        "clusterCIDR": settings.pod_cidr,
        "hostnameOverride": settings.node_name,
        "healthzBindAddress": f"0.0.0.0:{settings.proxy_healthz_port}",
        "metricsBindAddress": f"127.0.0.1:{settings.proxy_metrics_port}",
    }


def write_all(settings: Settings) -> None:
    """Write certificates, kubeconfigs and configuration files; what is there and still good is kept."""
    layout, now = settings.layout, SYSTEM.now()
    hosts = [settings.node_name, settings.node_ip, *settings.names]
    keys = pki_layout.ensure(
        layout.pki,
        now=now,
        hosts=hosts,
        domain=settings.cluster_domain,
        service_address=settings.kubernetes_service,
    )
    users = {
        layout.admin_kubeconfig: ("kubernetes-admin", (ADMIN_GROUP,)),
        layout.agent_kubeconfig: (f"system:node:{settings.node_name}", ("system:nodes",)),
        layout.netproxy_kubeconfig: ("system:kube-proxy", ()),
    }
    for path, (user, groups) in users.items():
        if not _current(path, settings.server, keys):
            pair = keys.client(user, groups, now)
            access = kubeconfig.Access(
                server=settings.server, ca=keys.ca.cert_pem, certificate=pair.cert_pem, key=pair.key_pem
            )
            kubeconfig.write(path, kubeconfig.render(access, user=user))
    _serving_certificate(settings, keys)
    for folder in (layout.etc / "manifests", layout.pod_logs, layout.container_logs, layout.state / "control"):
        folder.mkdir(parents=True, exist_ok=True)
    layout.kubelet_configuration.write_text(yaml.safe_dump(kubelet_configuration(settings), sort_keys=False))
    layout.proxy_configuration.write_text(yaml.safe_dump(proxy_configuration(settings), sort_keys=False))


def _current(path: Path, server: str, keys: pki_layout.ClusterPKI) -> bool:
    """True where a kubeconfig leads to this server, trusts its authority and has a month to live."""
    from datetime import timedelta

    from cryptography import x509

    try:
        access = kubeconfig.load(path)
        certificate = x509.load_pem_x509_certificate(access.certificate or b"")
    except (kubeconfig.KubeconfigError, ValueError):
        return False
    left = certificate.not_valid_after_utc - SYSTEM.now()
    return access.server == server and access.ca == keys.ca.cert_pem and left > timedelta(days=30)


def _serving_certificate(settings: Settings, keys: pki_layout.ClusterPKI) -> None:
    """Issue the kubelet port's certificate from the cluster's CA, unless the one that is there will do."""
    folder = settings.layout.kubelet / "pki"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    names, now = [settings.node_name, settings.node_ip, "localhost", "127.0.0.1"], SYSTEM.now()
    with contextlib.suppress(OSError, pki.PKIError):
        if pki_layout.usable(pki.KeyPair.load(folder, "kubelet").certificate, keys.ca, names, now):
            return
    user, groups = f"system:node:{settings.node_name}", ("system:nodes",)
    pki.issue(keys.ca, user, groups, usages=(pki.SERVER,), sans=names, now=now).save(folder, "kubelet")
