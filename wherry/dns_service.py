"""Cluster DNS as the Service that manifests and people know, kube-system/kube-dns.

It has no selector: every node answers its addresses itself. The endpoint of each is that address, a local one on every node:
a proxy that programs rules for the Service translates the address to itself, and the packet stays on the node.
A node's own address would be reachable from outside, and the API rejects link-local addresses in endpoints.
"""

from __future__ import annotations

from kube.api import core_v1, discovery_v1, meta_v1
from kube.client import Client
from kube.deletion import delete_if_present
from kube.errors import StatusError
from wherry.settings import Settings

NAME, NAMESPACE = "kube-dns", "kube-system"
MANAGER = "wherry"
OWN_SLICES = f"kubernetes.io/service-name={NAME},endpointslice.kubernetes.io/managed-by={MANAGER}"


async def ensure(client: Client, settings: Settings) -> None:
    """Create the Service and its slices, one a family; slices that Wherry wrote otherwise are written again.

    A Service of that name with a selector is a DNS of the operator's own, and is left as it is.
    """
    service = await _ensure_service(client, settings)
    if not service.spec.selector:
        for number, address in enumerate(settings.dns_addresses):
            await _ensure_slice(client, _slice(address, first=number == 0))


async def remove(client: Client) -> None:
    """Delete the Service and its slices, so that another DNS can have its name and address; an operator's own is kept."""
    slices = (await client.list(discovery_v1.EndpointSlice, NAMESPACE, label_selector=OWN_SLICES)).items
    try:
        service = await client.get(core_v1.Service, NAME, NAMESPACE)
        if slices and not service.spec.selector:
            await client.delete(core_v1.Service, NAME, NAMESPACE, uid=service.metadata.uid or "")
    except StatusError as error:
        if not error.not_found:
            raise
    for each in slices:
        await delete_if_present(client, discovery_v1.EndpointSlice, each.metadata.name or "", NAMESPACE)


async def _ensure_service(client: Client, settings: Settings) -> core_v1.Service:
    labels = {"k8s-app": NAME, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}
    service = core_v1.Service(
        metadata=meta_v1.ObjectMeta(name=NAME, namespace=NAMESPACE, labels=labels),
        spec=core_v1.ServiceSpec(
            cluster_ip=settings.dns_addresses[0],
            cluster_ips=list(settings.dns_addresses),
            ip_families=[_family(address) for address in settings.dns_addresses],
            ip_family_policy="RequireDualStack" if len(settings.dns_addresses) > 1 else "SingleStack",
            ports=[
                core_v1.ServicePort(name="dns", port=53, protocol="UDP"),
                core_v1.ServicePort(name="dns-tcp", port=53, protocol="TCP"),
            ],
        ),
    )
    try:
        return await client.get(core_v1.Service, NAME, NAMESPACE)
    except StatusError as error:
        if not error.not_found:
            raise
    return await client.create(service)


async def _ensure_slice(client: Client, wanted: discovery_v1.EndpointSlice) -> None:
    name = wanted.metadata.name or ""
    try:
        found = await client.get(discovery_v1.EndpointSlice, name, NAMESPACE)
    except StatusError as error:
        if not error.not_found:
            raise
    else:
        if found.metadata.labels.get("endpointslice.kubernetes.io/managed-by") != MANAGER or _same(found, wanted):
            return
        # Not updated: its family, which is for ever, may be another one.
        await client.delete(discovery_v1.EndpointSlice, name, NAMESPACE)
    await client.create(wanted)


def _same(found: discovery_v1.EndpointSlice, wanted: discovery_v1.EndpointSlice) -> bool:
    return [each.addresses for each in found.endpoints] == [each.addresses for each in wanted.endpoints]


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _slice(address: str, *, first: bool) -> discovery_v1.EndpointSlice:
    return discovery_v1.EndpointSlice(
        metadata=meta_v1.ObjectMeta(
            name=NAME if first else f"{NAME}-{_family(address).lower()}",
            namespace=NAMESPACE,
            labels={
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
        ),
        address_type=_family(address),
        endpoints=[
            discovery_v1.Endpoint(
                addresses=[address],
                conditions=discovery_v1.EndpointConditions(ready=True, serving=True, terminating=False),
            )
        ],
        ports=[
            discovery_v1.EndpointPort(name="dns", port=53, protocol="UDP"),
            discovery_v1.EndpointPort(name="dns-tcp", port=53, protocol="TCP"),
        ],
    )
