"""Approves serving certificates of nodes automatically if they name nothing but the node itself.

Upstream approves none, since a node says itself what its addresses are, and one that lies would be given a certificate in
another's name. Here a name or address must be the node's and nobody else's: no other Node and no Service may have it, and
it must not be one at which an API server is or was found, whose certificates come from the same authority.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from cryptography import x509

from control.auth.certificates import KUBELET_SERVING, decode_request, refusal
from control.auth.x509 import subject_user
from control.recorded_servers import NAME, NAMESPACE
from kube.api import certificates_v1, core_v1
from kube.ip_addresses import canonical, reached
from kube.node_names import NODE_PREFIX, reserved
from kube.object_names import key_of

ADDRESSES = ("InternalIP", "ExternalIP")
HOST_NAMES = ("Hostname", "InternalDNS", "ExternalDNS")
MOST_NAMES, MOST_ADDRESSES = 64, 64
"""Names of a request and addresses of a Node that are looked at. Nodes choose both, and all of them are compared."""


def requesting_node(csr: certificates_v1.CertificateSigningRequest) -> str:
    """Return the node that requests a serving certificate of its own, "" where it is not such a request."""
    if csr.spec.signer_name != KUBELET_SERVING:
        return ""
    try:
        request = decode_request(csr.spec.request)
    except ValueError:
        return ""
    if refusal(KUBELET_SERVING, request, set(csr.spec.usages)):
        return ""
    name = subject_user(request.subject).name
    return name.removeprefix(NODE_PREFIX) if csr.spec.username == name else ""


def doubt(
    csr: certificates_v1.CertificateSigningRequest,
    node: core_v1.Node | None,
    others: Iterable[core_v1.Node],
    server_names: Collection[str],
    services: Iterable[core_v1.Service] = (),
    cluster_domain: str = "cluster.local",
) -> str:
    """Return why a person must look at a node's request, "" where it names only what is the node's own.

    `server_names` are the names and addresses of the API server. Services and nodes that are younger than the node do not
    count by their names: whoever makes one does not take the node's certificate from it.
    """
    if node is None:
        return "there is no such Node"
    others, services = list(others), list(services)
    san = decode_request(csr.spec.request).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = dict.fromkeys(san.get_values_for_type(x509.DNSName))
    ips = dict.fromkeys(san.get_values_for_type(x509.IPAddress))
    if len(names) + len(ips) > MOST_NAMES:
        return f"it has more than {MOST_NAMES} names and addresses"
    for name in names:
        with contextlib.suppress(ValueError):  # some clients compare an address with the names of a certificate, too
            ips[reached(name)] = None
        if why := _doubt_about_name(name, node, others, server_names, services, cluster_domain):
            return why
    own, taken = addresses(node), {a for other in others for a in addresses(other)}
    servers = {canonical(name) for name in server_names}
    owners = _owners(services) if ips else {}
    for address in ips:
        text = str(address)
        if reached(text) != address:  # Go's clients take the certificate for the IPv4 address's
            return f"{text} is an IPv4 address inside an IPv6 one"
        if text not in own:
            return f"{text} is not an address of the node"
        if text in taken:
            return f"{text} is an address of another node too"
        if text in servers or address.is_loopback:
            return f"{text} is an address of the API server"
        if text in owners:
            return f"{text} is an address of Service {key_of(owners[text])}"
    return ""


def doubt_about_servers(csr: certificates_v1.CertificateSigningRequest, recorded: Collection[str]) -> str:
    """Return why a person must look at a request for something that an API server is or was found at, "" if it is not."""
    san = decode_request(csr.spec.request).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    servers = {canonical(name) for name in recorded}
    for name in san:
        if (text := canonical(str(name.value))) in servers:
            return f"{text} is or was an address of an API server: see ConfigMap {NAMESPACE}/{NAME}"
    return ""


def _doubt_about_name(
    name: str,
    node: core_v1.Node,
    others: Iterable[core_v1.Node],
    server_names: Collection[str],
    services: Iterable[core_v1.Service],
    cluster_domain: str,
) -> str:
    if name != node.metadata.name:
        return f"{name} is not the node's name"
    if name in server_names or name.startswith("kubernetes.default.svc."):
        return f"{name} is a name of the API server"
    if why := reserved(name, cluster_domain):
        return why
    if name not in addresses(node, HOST_NAMES):
        return f"{name} is not a host name of the node"
    before = node.metadata.creation_timestamp or ""
    for other in others:
        if name in addresses(other, HOST_NAMES) and (other.metadata.creation_timestamp or "") <= before:
            return f"{name} is a host name of node {other.metadata.name}"
    if key := _service_named(name, services, before):
        return f"{name} is a name of Service {key}"
    return ""


def addresses(node: core_v1.Node, types: Collection[str] = ADDRESSES) -> set[str]:
    """Return the addresses of some types among the first in a node's status, IP addresses in their canonical form."""
    return {canonical(a.address) for a in node.status.addresses[:MOST_ADDRESSES] if a.type in types}


def _owners(services: Iterable[core_v1.Service]) -> dict[str, core_v1.Service]:
    """Return the Services by their cluster IPs and the addresses of their load balancers."""
    return {
        address: service
        for service in services
        for address in (*map(canonical, service.spec.cluster_ips), *_balanced(service))
    }


def _balanced(service: core_v1.Service) -> set[str]:
    """Return the addresses of a Service's load balancer; none of the built-in one, which are nodes' own."""
    balancer = service.status.load_balancer if service.spec.load_balancer_class else None
    return {canonical(each.ip) for each in (balancer.ingress if balancer is not None else ()) if each.ip}


def _service_named(name: str, services: Iterable[core_v1.Service], before: str) -> str:
    """Return the key of the Service that pods reach by `name`, and that is no younger than a time."""
    for service in services:
        metadata = service.metadata
        if name == f"{metadata.name}.{metadata.namespace}" and (metadata.creation_timestamp or "") <= before:
            return key_of(service)
    return ""
