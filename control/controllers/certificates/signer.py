"""Signs approved CertificateSigningRequests of the built-in signers with the cluster's CA.

Upstream: pkg/controller/certificates/signer.
"""

from __future__ import annotations

import base64
import logging

import msgspec

from control.auth.certificates import SIGNERS, has_condition, sign_request
from control.controllers.certificates.conditions import with_condition
from control.controllers.context import Context
from kube import pki
from kube.api import certificates_v1
from kube.controller import Controller
from kube.serialize import to_dict

log = logging.getLogger(__name__)
Request = certificates_v1.CertificateSigningRequest


class CertificateSigner:
    """Follows certificate signing requests."""

    def __init__(self, context: Context, cert: str, key: str) -> None:
        self._client, self._clock = context.client, context.clock
        self._ca = pki.KeyPair(pki.decode_certificate(cert.encode()), pki.decode_key(key.encode()))
        self._requests = context.informers.of(Request)
        self.controller = Controller("CSR signer", self.reconcile, workers=2, queue="certificate", clock=context.clock)
        self._requests.subscribe(lambda change: self.controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> None:
        """Sign one approved request, or set the condition Failed."""
        csr = self._requests.get(key)
        if csr is None or csr.status.certificate or csr.spec.signer_name not in SIGNERS:
            return
        shape = to_dict(csr)
        if not has_condition(shape, "Approved") or any(has_condition(shape, t) for t in ("Denied", "Failed")):
            return
        try:
            pem = sign_request(self._ca, shape["spec"], self._clock.now())
        except ValueError as error:
            await self._fail(csr, str(error))
            return
        status = msgspec.structs.replace(csr.status, certificate=base64.b64encode(pem).decode())
        await self._client.update_status(msgspec.structs.replace(csr, status=status))

    async def _fail(self, csr: Request, why: str) -> None:
        failed = with_condition(csr, "Failed", "SignerValidationFailure", why, self._clock.now())
        await self._client.update_status(failed)
