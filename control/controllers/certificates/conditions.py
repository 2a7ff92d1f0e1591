"""Conditions of certificate requests."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kube.api import certificates_v1
from kube.clock import format_time

Request = certificates_v1.CertificateSigningRequest


def with_condition(csr: Request, kind: str, reason: str, message: str, now: datetime) -> Request:
    """Return a request with one more condition."""
    condition = certificates_v1.CertificateSigningRequestCondition(
        type=kind,
        status="True",
        reason=reason,
        message=message,
        last_update_time=format_time(now),
        last_transition_time=format_time(now),
    )
    status = msgspec.structs.replace(csr.status, conditions=[*csr.status.conditions, condition])
    return msgspec.structs.replace(csr, status=status)
