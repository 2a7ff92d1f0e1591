"""CSR approving: a node's requests for certificates of its own need no person.

A client certificate's request must be exactly what a kubelet (or its proxy) requests, and the requestor allowed to make
it, which the API server is asked (SubjectAccessReview; upstream: pkg/controller/certificates/approver/sarapprove.go). A
serving certificate must name the node alone (serving.py). Whoever joins chooses a name, which must not be one of Services.
"""

from __future__ import annotations

import logging

from control import recorded_servers
from control.auth.certificates import CLIENT, KUBELET_CLIENT, decode_request, has_condition, refusal
from control.auth.x509 import subject_user
from control.controllers.certificates import serving
from control.controllers.certificates.conditions import with_condition
from control.controllers.context import Context
from kube.api import authorization_v1, certificates_v1, core_v1, discovery_v1
from kube.certificates import PROXY_USER
from kube.clock import parse_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.names import dns1123_subdomain
from kube.node_names import NODE_PREFIX, reserved
from kube.serialize import to_dict

log = logging.getLogger(__name__)
Request = certificates_v1.CertificateSigningRequest
LOOK_AGAIN_SECONDS, LOOK_SECONDS = 30.0, 15 * 60.0
"""Interval and limit, in seconds, of checks whether a serving request's names have become the node's."""


def candidates(csr: Request, cluster_domain: str = "cluster.local") -> list[tuple[str, str]]:
    """Return (subresource, message) of the permissions of which one lets a request be approved; none: not ours."""
    if csr.spec.signer_name not in (CLIENT, KUBELET_CLIENT):
        return []
    try:
        request = decode_request(csr.spec.request)
    except ValueError:
        return []
    if refusal(csr.spec.signer_name, request, set(csr.spec.usages)):
        return []
    if csr.spec.signer_name == CLIENT:
        subject = subject_user(request.subject)
        if subject.name != PROXY_USER or subject.groups or len(request.extensions):
            return []
        kind = "selfproxyclient" if csr.spec.username == PROXY_USER else "proxyclient"
        return [(kind, "Auto approving the proxy's client certificate after SubjectAccessReview.")]
    found, user = [], subject_user(request.subject).name
    if csr.spec.username == user:
        found.append(("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."))
    name = user.removeprefix(NODE_PREFIX)
    if not dns1123_subdomain(name) and not reserved(name, cluster_domain):
        found.append(("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."))
    return found


class CertificateApprover:
    """Follows certificate signing requests."""

    def __init__(
        self, context: Context, server_names: frozenset[str] = frozenset(), cluster_domain: str = "cluster.local"
    ) -> None:
        self._server_names, self._domain = server_names, cluster_domain
        self._client, self._clock = context.client, context.clock
        self._requests = context.informers.of(Request)
        self.controller = Controller(
            "CSR approver", self.reconcile, workers=2, queue="certificate", clock=context.clock, owner=self._requestor
        )
        self._requests.subscribe(lambda change: self.controller.enqueue(change.key))
        self._nodes = context.informers.of(core_v1.Node)
        self._nodes.subscribe(self._node_changed)
        self._services = context.informers.of(core_v1.Service)
        self._slices = context.informers.of(discovery_v1.EndpointSlice)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _requestor(self, key: str) -> str:
        csr = self._requests.get(key)
        return f"requests of {csr.spec.username}" if csr is not None else key

    async def reconcile(self, key: str) -> float | None:
        """Approve one request, if it is one of those."""
        csr = self._requests.get(key)
        if csr is None or csr.status.certificate or any(has_condition(to_dict(csr), t) for t in ("Approved", "Denied")):
            return None
        for subresource, message in candidates(csr, self._domain):
            if await self._allowed(csr, subresource):
                await self._approve(csr, message)
                return None
        if name := serving.requesting_node(csr):
            others = [node for node in self._nodes.list() if node.metadata.name != name]
            servers, services = self._server_addresses() | self._server_names, self._services.list()
            doubt = serving.doubt(csr, self._nodes.get(name), others, servers, services, self._domain)
            doubt = doubt or serving.doubt_about_servers(csr, await self._recorded_servers())
            if not doubt:
                await self._approve(csr, "Auto approving a serving certificate that names its node alone.")
            elif (self._clock.now() - parse_time(csr.metadata.creation_timestamp or "")).total_seconds() < LOOK_SECONDS:
                log.info("%s of node %s is not approved: %s", key, name, doubt)
                return LOOK_AGAIN_SECONDS
        return None

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        """A node's addresses may be those now that it waits for a certificate for."""
        for csr in self._requests.list():
            if not csr.status.certificate and csr.spec.username == NODE_PREFIX + change.key:
                self.controller.enqueue(csr.metadata.name or "")

    def _server_addresses(self) -> set[str]:
        """Return where the API server is found: the Service `kubernetes` and what is behind it."""
        service, slice_ = self._services.get("default/kubernetes"), self._slices.get("default/kubernetes")
        found = set(service.spec.cluster_ips) if service is not None else set()
        if slice_ is not None:
            found |= {address for endpoint in slice_.endpoints for address in endpoint.addresses}
        return found

    async def _recorded_servers(self) -> list[str]:
        """Return the names and addresses that API servers have or had; none where the servers record none."""
        try:
            found = await self._client.get(core_v1.ConfigMap, recorded_servers.NAME, recorded_servers.NAMESPACE)
        except StatusError as error:
            if not error.not_found:
                raise
            return []
        return recorded_servers.names(found.data)

    async def _allowed(self, csr: Request, subresource: str) -> bool:
        review = authorization_v1.SubjectAccessReview(
            spec=authorization_v1.SubjectAccessReviewSpec(
                user=csr.spec.username,
                uid=csr.spec.uid,
                groups=csr.spec.groups,
                extra=csr.spec.extra,
                resource_attributes=authorization_v1.ResourceAttributes(
                    group="certificates.k8s.io",
                    resource="certificatesigningrequests",
                    verb="create",
                    subresource=subresource,
                    version="*",
                ),
            )
        )
        answer = await self._client.create(review)
        return bool(answer.status.allowed)

    async def _approve(self, csr: Request, message: str) -> None:
        approved = with_condition(csr, "Approved", "AutoApproved", message, self._clock.now())
        await self._client.update(approved, subresource="approval")
