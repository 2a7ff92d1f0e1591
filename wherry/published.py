"""Configuration that the cluster publishes to nodes in the ConfigMaps that kubeadm uses.

    kube-public/cluster-info      where the cluster is and its CA, signed with the bootstrap tokens (discovery)
    kube-system/kubelet-config    the KubeletConfiguration that all nodes share
    kube-system/kube-proxy        the KubeProxyConfiguration that all nodes share
    kube-system/wherry-config     settings without a field in upstream's kinds: ranges, and the storage engine

`wherry up` writes them, `wherry join` reads them with its token. Fields that an administrator added are kept; options of
`up` take precedence.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from kube import kubeconfig
from kube.api import core_v1, meta_v1
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_PREFIX
from kube.client import Client
from kube.errors import StatusError
from kube.kubeconfig import Access
from wherry import configuration
from wherry.errors import WherryError
from wherry.settings import Settings

SYSTEM = "kube-system"
KUBELET, PROXY, CLUSTER = (
    ("kubelet-config", "kubelet"),
    ("kube-proxy", "config.conf"),
    ("wherry-config", "cluster.yaml"),
)
SHARED_SETTINGS = (
    "pod_cidr",
    "service_cidr",
    "cluster_domain",
    "cluster_dns",
    "pod_network",
    "proxy",
    "dns",
    "proxy_mode",
    "node_routes",
    "service_load_balancer",
    "load_balancer_ports",
    "disable",
    "store",
)


@dataclass(frozen=True, slots=True)
class Published:
    """The documents that a joining node reads, decoded."""

    kubelet: dict[str, Any]
    proxy: dict[str, Any]
    cluster: dict[str, Any]


async def publish(client: Client, settings: Settings) -> None:
    """Write all of it, as an administrator."""
    cluster = {name: getattr(settings, name) for name in SHARED_SETTINGS}
    documents = (
        (KUBELET, configuration.shared_kubelet(settings)),
        (PROXY, configuration.shared_proxy(settings)),
        (CLUSTER, cluster),
    )
    for (name, key), wanted in documents:
        present = await _present(client, name, SYSTEM)
        before = _decoded(present.data.get(key, "")) if present is not None else {}
        await _write(client, present, name, SYSTEM, {key: yaml.safe_dump(before | wanted, sort_keys=False)})
    access = Access(server=settings.server, ca=(settings.layout.pki / "ca.crt").read_bytes())
    present = await _present(client, CLUSTER_INFO, CLUSTER_INFO_NAMESPACE)
    if present is None or KUBECONFIG_KEY not in present.data:
        document = {KUBECONFIG_KEY: kubeconfig.render_cluster(access)}
        await _write(client, present, CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, document)


async def read(client: Client) -> Published:
    """Read the nodes' documents with whatever identity the client has."""
    found: list[dict[str, Any]] = []
    for name, key in (KUBELET, PROXY, CLUSTER):
        found.append(_decoded((await client.get(core_v1.ConfigMap, name, SYSTEM)).data.get(key, "")))
    return Published(*found)


async def wait_signed(client: Client, token_id: str, seconds: float) -> None:
    """Wait until the discovery document is signed with a token, which works from then on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        document = await _present(client, CLUSTER_INFO, CLUSTER_INFO_NAMESPACE)
        if document is not None and SIGNATURE_PREFIX + token_id in document.data:
            return
        await asyncio.sleep(0.05)
    raise WherryError("the bootstrap signer has not signed the new token: do the controllers run (wherry status)?")


async def _present(client: Client, name: str, namespace: str) -> core_v1.ConfigMap | None:
    try:
        return await client.get(core_v1.ConfigMap, name, namespace)
    except StatusError as error:
        if error.not_found:
            return None
        raise


async def _write(
    client: Client, present: core_v1.ConfigMap | None, name: str, namespace: str, data: dict[str, str]
) -> None:
    if present is None:
        metadata = meta_v1.ObjectMeta(name=name, namespace=namespace)
        await client.create(core_v1.ConfigMap(metadata=metadata, data=data))
    elif any(present.data.get(key) != text for key, text in data.items()):
        await client.update(msgspec.structs.replace(present, data={**present.data, **data}))


def _decoded(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}
