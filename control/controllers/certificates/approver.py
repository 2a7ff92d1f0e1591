"""CSR approving: a node's request for its own client certificate needs no person.

The request must be exactly what a kubelet asks for, and the requestor allowed to make it, which the API server is asked
(SubjectAccessReview). Upstream: pkg/controller/certificates/approver/sarapprove.go.
"""

from __future__ import annotations

import msgspec

from control.auth.certificates import KUBELET_CLIENT, decode_request, has_condition, refusal
from control.auth.x509 import subject_user
from control.controllers.context import Context
from kube.api import authorization_v1, certificates_v1
from kube.clock import format_time
from kube.controller import Controller
from kube.serialize import to_dict

Request = certificates_v1.CertificateSigningRequest


def candidates(csr: Request) -> list[tuple[str, str]]:
    """Return (subresource, message) of the permissions of which one lets a request be approved; none: not ours."""
    if csr.spec.signer_name != KUBELET_CLIENT:
        return []
    try:
        request = decode_request(csr.spec.request)
    except ValueError:
        return []
    if refusal(KUBELET_CLIENT, request, set(csr.spec.usages)):
        return []
    found = [("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")]
    if csr.spec.username == subject_user(request.subject).name:
        found.insert(0, ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."))
    return found


class CertificateApprover:
    """Follows certificate signing requests."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._requests = context.informers.of(Request)
        self.controller = Controller("CSR approver", self.reconcile, workers=2, clock=context.clock)
        self._requests.subscribe(lambda change: self.controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> None:
        """Approve one request, if it is one of those."""
        csr = self._requests.get(key)
        if csr is None or csr.status.certificate or any(has_condition(to_dict(csr), t) for t in ("Approved", "Denied")):
            return
        for subresource, message in candidates(csr):
            if await self._allowed(csr, subresource):
                await self._approve(csr, message)
                return

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
        now = format_time(self._clock.now())
        condition = certificates_v1.CertificateSigningRequestCondition(
            type="Approved",
            status="True",
            reason="AutoApproved",
            message=message,
            last_update_time=now,
            last_transition_time=now,
        )
        status = msgspec.structs.replace(csr.status, conditions=[*csr.status.conditions, condition])
        await self._client.update(msgspec.structs.replace(csr, status=status), subresource="approval")
