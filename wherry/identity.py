"""Identity of a node and its cluster: options that `wherry up` refuses to change on a machine that has a cluster.

Objects and certificates contain them: a node's name and its part of the pod range are permanent, the address of the Service
`kubernetes` and cluster DNS are those of running pods. The cluster itself is compared where it can be, so that an option that
an earlier version has saved by mistake can be taken back; the saved options otherwise.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass

from cryptography import x509

from kube import kubeconfig, subjects
from kube.api import core_v1, networking_v1
from kube.errors import StatusError
from kube.node_names import NODE_PREFIX
from wherry import cluster
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.value_forms import Network

READ_SECONDS = 5.0
RESET = "`wherry reset` removes the cluster"


@dataclass(frozen=True, slots=True)
class Identity:
    """Node name, Service ranges and the nodes' pod ranges as a cluster has them."""

    node_name: str
    service_cidr: str
    pod_cidrs: tuple[str, ...] = ()


def saved(before: Settings) -> Identity:
    """Return the identity by the machine's files: the node's name is that of its client certificate."""
    name = before.node_name
    try:
        inside = kubeconfig.load(before.layout.agent_kubeconfig).certificate
        found = subjects.read(x509.load_pem_x509_certificate(inside or b"").subject)
        name = found.name.removeprefix(NODE_PREFIX) or name
    except (kubeconfig.KubeconfigError, ValueError):
        pass
    return Identity(name, before.service_cidr)


async def require(before: Settings, wanted: Settings) -> None:
    """Raise WherryError for an option that this machine's cluster cannot change; `wanted` is complete."""
    try:
        check(before, wanted, saved(before))
    except WherryError:
        check(before, wanted, await running(before))


async def running(before: Settings) -> Identity:
    """Return the identity as the running cluster has it; that of the files if its API server does not answer."""
    found = saved(before)
    if before.is_worker:
        return found
    try:
        async with asyncio.timeout(READ_SECONDS), cluster.admin(before) as client:
            services = await client.get(networking_v1.ServiceCIDR, "kubernetes")
            nodes = (await client.list(core_v1.Node)).items
    except (StatusError, WherryError, TimeoutError, OSError):
        return found
    pods = tuple(cidr for node in nodes for cidr in node.spec.pod_cidrs)
    return Identity(found.node_name, ",".join(services.spec.cidrs) or found.service_cidr, pods)


def check(before: Settings, wanted: Settings, found: Identity) -> None:
    """Compare the settings that are wanted with an identity; raise WherryError."""
    if wanted.node_name != found.node_name:
        again = "`wherry reset` it and join again" if wanted.joined else RESET
        raise WherryError(
            f"--node-name {wanted.node_name}: this machine is node {found.node_name}: to give it another name, {again}"
        )
    if wanted.is_worker:
        return
    if _networks(wanted.service_cidr) != _networks(found.service_cidr):
        raise WherryError(
            f"--service-cidr {wanted.service_cidr}: this cluster has {found.service_cidr}, and running pods its addresses; a "
            f"ServiceCIDR object adds a range, {RESET}"
        )
    _check_pods(before, wanted, found)
    if wanted.cluster_domain != before.cluster_domain:
        raise WherryError(
            f"--cluster-domain {wanted.cluster_domain}: this cluster has {before.cluster_domain}, and running pods its names; "
            f"{RESET}"
        )
    _check_dns(before, wanted)
    if wanted.store == before.store == "etcd" and wanted.etcd_prefix != before.etcd_prefix:
        raise WherryError(
            f"--etcd-prefix {wanted.etcd_prefix}: the keys of this cluster begin with {before.etcd_prefix}; {RESET}"
        )


def _check_pods(before: Settings, wanted: Settings, found: Identity) -> None:
    """Refuse another pod range, except for another program's pod network, whose plugin has its own."""
    new, old = _networks(wanted.pod_cidr), _networks(before.pod_cidr)
    if new == old or not wanted.own_pod_network:
        return
    taken = _networks(",".join(found.pod_cidrs)) if found.pod_cidrs else ()
    # Nodes that have no part of the saved range were given theirs before it was changed by mistake.
    if taken and not _inside(taken, old) and _inside(taken, new):
        return
    raise WherryError(
        f"--pod-cidr {wanted.pod_cidr}: this cluster has {before.pod_cidr}, and its nodes keep their parts of it; {RESET}"
    )


def _check_dns(before: Settings, wanted: Settings) -> None:
    """Refuse another address of cluster DNS while nodes answer at the present one; a second family may be added."""
    if not (before.serves_dns and wanted.serves_dns):
        return
    lost = [address for address in before.dns_addresses if address and address not in wanted.dns_addresses]
    if lost and wanted.service_cidr == before.service_cidr:
        raise WherryError(
            f"--cluster-dns {wanted.cluster_dns}: running pods ask {lost[0]}; to change it, run `wherry up --cluster-dns none` "
            "first, and start the pods again afterwards"
        )


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))


def _inside(parts: tuple[Network, ...], whole: tuple[Network, ...]) -> bool:
    return all(any(part.version == each.version and _contains(each, part) for each in whole) for part in parts)


def _contains(whole: Network, part: Network) -> bool:
    return part.network_address in whole and part.broadcast_address in whole
