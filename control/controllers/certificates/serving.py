"""Which serving certificates nodes are given without a person: those that name nothing but the node itself.

Upstream approves none, since a node says itself what its addresses are, and one that lies would be given a certificate in
another's name. Here a name or address must be the node's and nobody else's: no other Node may have it, and it must not be
one at which the API server is found, whose certificates come from the same authority.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from cryptography import x509

from control.auth.certificates import KUBELET_SERVING, decode_request, refusal
from control.auth.node import NODE_PREFIX
from control.auth.x509 import subject_user
from kube.api import certificates_v1, core_v1

ADDRESSES = ("InternalIP", "ExternalIP")
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def requesting_node(csr: certificates_v1.CertificateSigningRequest) -> str:
    """Return the node that asks for a serving certificate of its own, "" where it is not such a request."""
    if csr.spec.signer_name != KUBELET_SERVING:
        return ""
    try:
        request = decode_request(csr.spec.request)
    except ValueError:
        return ""
    name = subject_user(request.subject).name
    if refusal(KUBELET_SERVING, request, set(csr.spec.usages)) or csr.spec.username != name:
        return ""
    return name.removeprefix(NODE_PREFIX)


def doubt(
    csr: certificates_v1.CertificateSigningRequest,
    node: core_v1.Node | None,
    others: Iterable[core_v1.Node],
    server_names: Collection[str],
) -> str:
    """Return why a person must look at a node's request, "" where it names only what is the node's own.

    `server_names` are the names and addresses of the API server.
    """
    if node is None:
        return "there is no such Node"
    san = decode_request(csr.spec.request).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for name in san.get_values_for_type(x509.DNSName):
        if name != node.metadata.name:
            return f"{name} is not the node's name"
        if name in SERVER_NAMES or name in server_names or name.startswith("kubernetes.default.svc."):
            return f"{name} is a name of the API server"
    own, taken = addresses(node), {a for other in others for a in addresses(other)}
    for address in san.get_values_for_type(x509.IPAddress):
        text = str(address)
        if text not in own:
            return f"{text} is not an address of the node"
        if text in taken:
            return f"{text} is an address of another node too"
        if text in server_names or ipaddress.ip_address(text).is_loopback:
            return f"{text} is an address of the API server"
    return ""


def addresses(node: core_v1.Node) -> set[str]:
    """Return the addresses that a node says it has."""
    return {a.address for a in node.status.addresses if a.type in ADDRESSES}
