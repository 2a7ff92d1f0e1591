"""Files that `wherry join` writes after all requests: keys and certificates, kubeconfigs, configuration files."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kube import certificates, kubeconfig, pki
from kube.certificates import PROXY, PROXY_USER
from kube.clock import SYSTEM
from kube.files import write_file
from kube.kubeconfig import Access
from wherry import certificate_bundle, configuration, containerd, file_modes, published
from wherry.certificate_bundle import Bundle
from wherry.discovery import Discovered
from wherry.settings import Settings


@dataclass(frozen=True, slots=True)
class Identity:
    """A key made here and the certificate that the cluster signed for it (PEM)."""

    key: pki.PrivateKey
    certificate: bytes


def write_worker(settings: Settings, found: Discovered, node: Identity, proxy: Identity) -> None:
    """Write the CA, the two identities of a worker, and the kubeconfigs that use them."""
    layout, now = settings.layout, SYSTEM.now()
    file_modes.make_folders(settings)
    write_file(layout.pki / "ca.crt", found.ca, 0o644)
    agent_user = f"system:node:{settings.node_name}"
    for kind, identity, folder, target, user in (
        (certificates.CLIENT, node, layout.kubelet / "pki", layout.agent_kubeconfig, agent_user),
        (PROXY, proxy, layout.proxy_pki, layout.netproxy_kubeconfig, PROXY_USER),
    ):
        current = str(certificates.store(folder, kind, identity.certificate, identity.key, now))
        access = Access(server=found.server, ca=found.ca, certificate_file=current, key_file=current)
        kubeconfig.write(target, kubeconfig.render(access, user=user))


def write_member(settings: Settings, bundle: Bundle) -> Settings:
    """Write what the members share and make this one's own certificates from it; return the settings with etcd's files."""
    file_modes.make_folders(settings)
    named = certificate_bundle.install(bundle, settings.layout)
    settings = msgspec.structs.replace(settings, **named)
    configuration.write_all(settings)
    return settings


def write_common(settings: Settings, documents: published.Published) -> None:
    """Write the machine's settings and the daemons' configuration files."""
    settings.save()
    containerd.write_configuration(settings)
    configuration.write_node(settings, documents.kubelet, documents.proxy)
