"""CertificateApproval, CertificateSigning and CertificateSubjectRestriction: authorization for approving and signing requests
of a signer.

Approving and signing need the verbs `approve` and `sign` on `signers`, by the signer's name or its domain and "*"
(plugin/pkg/admission/certificates).
"""

from __future__ import annotations

from control.admission.refusal import refuse
from control.auth import certificates
from control.auth.authorizers import allowed
from control.auth.user import SYSTEM_MASTERS, Authorizer, AuthzAttributes, UserInfo
from control.event_loop import offload
from control.interfaces.admission import Attributes, Plugin

_TARGET = "certificatesigningrequests.certificates.k8s.io"


async def _may(authorizer: Authorizer, user: UserInfo, verb: str, signer: str) -> bool:
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        asked = AuthzAttributes(
            user=user, verb=verb, group="certificates.k8s.io", version="*", resource="signers", name=name
        )
        if await allowed(authorizer, asked):
            return True
    return False


async def requested_user(attributes: Attributes, text: str) -> UserInfo:
    """Return the user that a certificate request is for, decoded outside the event loop if it is long; ValueError as there."""
    size = offload.LARGE if len(text) >= offload.YIELD_WEIGHT else len(text)
    return await offload.run(attributes.user.name, size, certificates.requested_user, text)


class _SignerPermission(Plugin):
    """Base of the plugins that authorize updates of a subresource by the signer that a request names."""

    targets = (_TARGET,)
    subresource: str
    verb: str

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, attributes: Attributes) -> bool:
        return (
            attributes.resource.target == _TARGET
            and attributes.subresource == self.subresource
            and attributes.operation == "UPDATE"
        )

    async def validate(self, attributes: Attributes) -> None:
        signer = (attributes.old or {}).get("spec", {}).get("signerName", "")
        if not await _may(self._authorizer, attributes.user, self.verb, signer):
            raise refuse(attributes, f'user not permitted to {self.verb} requests with signerName "{signer}"')


class CertificateApproval(_SignerPermission):
    name, subresource, verb = "CertificateApproval", "approval", "approve"


class CertificateSigning(_SignerPermission):
    name, subresource, verb = "CertificateSigning", "status", "sign"

    async def validate(self, attributes: Attributes) -> None:
        if _outcome(attributes.obj or {}) != _outcome(attributes.old or {}):
            await super().validate(attributes)


def _outcome(csr: dict[str, object]) -> tuple[object, bool]:
    status = csr.get("status")
    issued = status.get("certificate") if isinstance(status, dict) else None
    return issued, certificates.has_condition(csr, "Failed")


class CertificateSubjectRestriction(Plugin):
    name = "CertificateSubjectRestriction"
    targets = (_TARGET,)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern(_TARGET, "CREATE")

    async def validate(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec", {})
        if spec.get("signerName") != certificates.CLIENT:
            return
        try:
            groups = (await requested_user(attributes, spec.get("request", ""))).groups
        except ValueError as error:
            raise refuse(attributes, f"failed to parse CSR: {error}") from error
        # Blanks around a group are lost in headers.
        if SYSTEM_MASTERS in {group.strip() for group in groups}:
            signer = certificates.CLIENT
            raise refuse(attributes, f"use of {signer} signer with {SYSTEM_MASTERS} group is not allowed")
