"""Certificate requests of a node that wait for a person.

A node may request any certificate, and gets what is approved. A client certificate of its own identity is safe to approve. A
serving certificate is so only if all its names and addresses are the node's and nobody else's, by the rules of the control
plane's approver: what that leaves to a person has names that a person must look at.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509

from control import recorded_servers
from control.auth.certificates import KUBELET_CLIENT, KUBELET_SERVING, decode_request, refusal
from control.auth.x509 import subject_user
from control.controllers.certificates import serving
from kube.api import certificates_v1, core_v1, discovery_v1
from kube.errors import StatusError
from kube.node_names import NODE_PREFIX
from kube.object_names import name_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.reading import Reader

Request = certificates_v1.CertificateSigningRequest
MOST_NAMES = 5


async def of_client(diagnosis: Diagnosis, node: str) -> Sequence[Cause]:
    """Return a node's request for a client certificate that waits for approval: without one its kubelet cannot report."""
    for request in await _waiting(diagnosis.reader, KUBELET_CLIENT, node):
        text = f"the certificate request {name_of(request)} of node {node} waits for approval"
        return [Cause(text, commands.approve(name_of(request)), reference(request))]
    return ()


async def of_serving(diagnosis: Diagnosis, node: core_v1.Node) -> Sequence[Cause]:
    """Return a node's request for a serving certificate that waits for approval: logs and exec may not work without one."""
    name = name_of(node)
    for request in await _waiting(diagnosis.reader, KUBELET_SERVING, name):
        about = reference(request)
        effect = f"logs, exec and port-forward of pods on node {name} may not work"
        waits = f"its request {name_of(request)} for a serving certificate waits for approval"
        if doubt := await _doubt(diagnosis.reader, request, node):
            text = f"{effect}: {waits}, and a person must look at its names ({_names(request)}): {doubt}"
            return [Cause(text, commands.kubectl("describe", about), about, partial=True)]
        return [Cause(f"{effect}: {waits}", commands.approve(name_of(request)), about, partial=True)]
    return ()


async def _waiting(reader: Reader, signer: str, node: str) -> list[Request]:
    """Return the requests of a node for itself (upstream: the signers' rules) that are neither approved nor denied."""
    return [
        request
        for request in await reader.all(Request)
        if request.spec is not None
        and is_of_node(request.spec, signer, node)
        and (request.status is None or not (request.status.conditions or request.status.certificate))
    ]


def is_of_node(spec: certificates_v1.CertificateSigningRequestSpec, signer: str, node: str) -> bool:
    """Return whether a node requests a certificate of a signer, with its own subject."""
    user = f"{NODE_PREFIX}{node}"
    if spec.signer_name != signer or spec.username != user:
        return False
    try:
        request = decode_request(spec.request)
    except ValueError:
        return False
    return not refusal(signer, request, set(spec.usages)) and subject_user(request.subject).name == user


async def _doubt(reader: Reader, request: Request, node: core_v1.Node) -> str:
    """Return why a serving certificate may be for somebody else, "" if it names only what is the node's own."""
    others = [each for each in await reader.all(core_v1.Node) if name_of(each) != name_of(node)]
    services = await reader.all(core_v1.Service)
    slices = await reader.all(
        discovery_v1.EndpointSlice, "default", label_selector="kubernetes.io/service-name=kubernetes"
    )
    if unread := reader.incomplete & {core_v1.Node, core_v1.Service, discovery_v1.EndpointSlice}:
        return f"not all {' and '.join(sorted(each.__name__ for each in unread))} objects could be read"
    try:
        found = await reader.client.get(core_v1.ConfigMap, recorded_servers.NAME, recorded_servers.NAMESPACE)
        recorded = recorded_servers.names(found.data)
    except StatusError as error:
        if not error.not_found:
            return "the recorded addresses of API servers could not be read"
        recorded = []
    servers = {address for slice_ in slices for endpoint in slice_.endpoints for address in endpoint.addresses}
    for service in services:
        if (service.metadata.namespace, name_of(service)) == ("default", "kubernetes"):
            servers |= set(service.spec.cluster_ips)
    if any(".svc." in f"{name}." for name in _san(request).get_values_for_type(x509.DNSName)):
        return "it has a name of Services"  # of any cluster domain, which is not known here
    doubt = serving.doubt(request, node, others, servers, services)
    return doubt or serving.doubt_about_servers(request, recorded)


def _san(request: Request) -> x509.SubjectAlternativeName:
    assert request.spec is not None
    extensions = decode_request(request.spec.request).extensions
    return extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _names(request: Request) -> str:
    names = [str(each.value) for each in _san(request)]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
