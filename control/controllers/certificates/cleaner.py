"""CSR cleaning: requests that are done with are deleted: decided ones after an hour, undecided ones after a day.

Upstream: pkg/controller/certificates/cleaner.
"""

from __future__ import annotations

from datetime import datetime

from control.controllers.context import Context
from kube.api import certificates_v1
from kube.clock import parse_time
from kube.controller import Controller
from kube.deletion import delete_if_present

DECIDED_SECONDS, PENDING_SECONDS = 3600.0, 24 * 3600.0
Request = certificates_v1.CertificateSigningRequest


def expires_in(csr: Request, now: datetime) -> float:
    """Return the seconds after which a request may be deleted, 0 or less where it may be now."""
    lifetimes = [PENDING_SECONDS - _since(csr.metadata.creation_timestamp, now)]
    for condition in csr.status.conditions:
        if condition.type in ("Denied", "Failed") or (condition.type == "Approved" and csr.status.certificate):
            lifetimes.append(DECIDED_SECONDS - _since(condition.last_update_time, now))
    return min(lifetimes)


def _since(text: str | None, now: datetime) -> float:
    return (now - parse_time(text)).total_seconds() if text else 0.0


class CertificateCleaner:
    """Follows certificate signing requests."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._requests = context.informers.of(Request)
        self.controller = Controller("CSR cleaner", self.reconcile, workers=1, clock=context.clock)
        self._requests.subscribe(lambda change: self.controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> float | None:
        """Delete one request, or come back when it is time."""
        csr = self._requests.get(key)
        if csr is None:
            return None
        wait = expires_in(csr, self._clock.now())
        if wait > 0:
            return wait
        await delete_if_present(self._client, Request, key, uid=csr.metadata.uid or "")
        return None
