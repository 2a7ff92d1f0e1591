"""The files that the roles read: upstream's own configuration kinds, and a kubeconfig for each."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kube import kubeconfig, pki, pki_layout
from kube.clock import SYSTEM
from kube.files import write_file
from wherry import daemons, file_modes
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.units import uses_systemd

ADMIN_GROUP = "system:masters"


def shared_kubelet(settings: Settings) -> dict[str, Any]:
    """Return the part of the KubeletConfiguration that all nodes of the cluster share."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
        "clusterDNS": list(settings.dns_addresses),
        "clusterDomain": settings.cluster_domain,
        "seccompDefault": True,
        "failSwapOn": False,
    }


def kubelet_configuration(settings: Settings, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the KubeletConfiguration of this node: what is shared, and where things are on this machine."""
    layout = settings.layout
    authentication = dict(shared.get("authentication") or {})
    document = {
        **shared,
        "port": settings.kubelet_port,
        "healthzPort": settings.kubelet_healthz_port,
        "authentication": authentication | {"x509": {"clientCAFile": str(layout.pki / "ca.crt")}},
        "containerRuntimeEndpoint": settings.runtime,
        # If systemd manages the cgroups, it creates ours: two writers in one tree undo each other's changes.
        "cgroupDriver": "systemd" if uses_systemd(settings) else "cgroupfs",
        "cgroupRoot": layout.cgroup,
        "podLogsDir": str(layout.pod_logs),
        "resolvConf": settings.resolv_conf,
        "staticPodPath": str(layout.etc / "manifests"),
        "maxPods": settings.max_pods,
    }
    if settings.tracing is not None:
        document["tracing"] = msgspec.to_builtins(settings.tracing)
    if not settings.is_worker:
        # With the authority's key on the machine there is nobody to ask.
        document |= {
            "serverTLSBootstrap": False,
            "tlsCertFile": str(layout.kubelet / "pki" / "kubelet.crt"),
            "tlsPrivateKeyFile": str(layout.kubelet / "pki" / "kubelet.key"),
        }
    return document


def shared_proxy(settings: Settings) -> dict[str, Any]:
    """Return the part of the KubeProxyConfiguration that all nodes of the cluster share."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": settings.proxy_mode,
        "clusterCIDR": settings.pod_cidr,
    }


def proxy_configuration(settings: Settings, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the KubeProxyConfiguration of this node."""
    return {
        **shared,
        "clientConnection": {"kubeconfig": str(settings.layout.netproxy_kubeconfig)},
        "hostnameOverride": settings.node_name,
        "healthzBindAddress": f"0.0.0.0:{settings.proxy_healthz_port}",
        "metricsBindAddress": f"127.0.0.1:{settings.proxy_metrics_port}",
    }


def write_node(settings: Settings, kubelet: dict[str, Any], proxy: dict[str, Any]) -> None:
    """Write the two daemons' configuration files and make the folders they expect."""
    layout = settings.layout
    file_modes.make_folders(settings)
    for path, document in (
        (layout.kubelet_configuration, kubelet_configuration(settings, kubelet)),
        (layout.proxy_configuration, proxy_configuration(settings, proxy)),
    ):
        write_file(path, yaml.safe_dump(document, sort_keys=False).encode(), 0o600)


def rewrite_node(settings: Settings) -> None:
    """Write the files again after options of this machine changed; what is shared stays as it was read when it joined."""
    layout = settings.layout
    kubelet, proxy = (yaml.safe_load(p.read_text()) for p in (layout.kubelet_configuration, layout.proxy_configuration))
    write_node(settings, kubelet, proxy)


def write_all(settings: Settings, *, renew_all: bool = False) -> bool:
    """Write certificates, kubeconfigs and configuration files; what is there and still good is kept.

    With `renew_all` certificates that are still good are issued anew, too; CAs never are.

    Returns whether the kubeconfig of a daemon has been replaced, now or by a command that was interrupted, which those that
    run have read at their start.
    """
    pending = daemons.restart_pending_file(settings)
    layout, now = settings.layout, SYSTEM.now()
    file_modes.make_folders(settings)
    hosts = [settings.node_name, *settings.node_ips, *settings.names]
    try:
        keys = pki_layout.ensure(
            layout.pki,
            now=now,
            hosts=hosts,
            domain=settings.cluster_domain,
            service_address=settings.kubernetes_service,
            renew_before=timedelta.max if renew_all else pki_layout.RENEW_BEFORE,
        )
    except pki.PKIError as error:
        raise WherryError(str(error)) from error
    users = {
        layout.admin_kubeconfig: ("kubernetes-admin", (ADMIN_GROUP,)),
        layout.agent_kubeconfig: (f"system:node:{settings.node_name}", ("system:nodes",)),
        layout.netproxy_kubeconfig: ("system:kube-proxy", ()),
    }
    written = []
    for path, (user, groups) in users.items():
        if renew_all or not _current(path, settings.server, keys):
            written.append(path)
            if path != layout.admin_kubeconfig and path.exists():
                pending.touch(0o600)
            pair = keys.client(user, groups, now)
            access = kubeconfig.Access(
                server=settings.server, ca=keys.ca.cert_pem, certificate=pair.cert_pem, key=pair.key_pem
            )
            kubeconfig.write(path, kubeconfig.render(access, user=user))
    _serving_certificate(settings, keys, renew=renew_all)
    write_node(settings, shared_kubelet(settings), shared_proxy(settings))
    return pending.exists() or any(path != layout.admin_kubeconfig for path in written)


def _current(path: Path, server: str, keys: pki_layout.ClusterPKI) -> bool:
    """True if a kubeconfig leads to this server, trusts its authority and has a month to live."""
    from cryptography import x509

    try:
        access = kubeconfig.load(path)
        certificate = x509.load_pem_x509_certificate(access.certificate or b"")
    except (kubeconfig.KubeconfigError, ValueError):
        return False
    left = certificate.not_valid_after_utc - SYSTEM.now()
    return access.server == server and access.ca == keys.ca.cert_pem and left > timedelta(days=30)


def _serving_certificate(settings: Settings, keys: pki_layout.ClusterPKI, *, renew: bool) -> None:
    """Issue the kubelet port's certificate from the cluster's CA, unless the one that is there will do."""
    folder = settings.layout.kubelet / "pki"
    names, now = [settings.node_name, *settings.node_ips, "localhost", "127.0.0.1"], SYSTEM.now()
    with contextlib.suppress(OSError, pki.PKIError):
        if not renew and pki_layout.usable(pki.KeyPair.load(folder, "kubelet").certificate, keys.ca, names, now):
            return
    user, groups = f"system:node:{settings.node_name}", ("system:nodes",)
    pki.issue(keys.ca, user, groups, usages=(pki.SERVER,), sans=names, now=now).save(folder, "kubelet")
