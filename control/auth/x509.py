"""Client certificates: the common name is the user, the organizations are the groups.

TLS has proved that the peer holds the key and that some trusted authority signed it. Here it is checked again that it was *the
client authority* (the front-proxy authority is trusted by the same listener and must not make users), that it is for client
use and that it is in date. A certificate's parsing and signature check cost 0.2 ms, so the answer is kept by its DER bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from control.auth.user import Credentials, UserInfo
from kube import subjects
from kube.clock import Clock
from kube.errors import unauthorized

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_KEPT = 4096


class CertificateAuthenticator:
    """Accepts client certificates signed by one of the authorities, as they are now."""

    def __init__(self, authorities: Callable[[], Sequence[x509.Certificate]], clock: Clock) -> None:
        self._current, self._clock = authorities, clock
        self._authorities: Sequence[x509.Certificate] = ()
        self._known: dict[bytes, tuple[UserInfo, datetime, datetime]] = {}

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.certificate is None:
            return None
        return self.user(credentials.certificate)

    def user(self, der: bytes) -> UserInfo:
        """Return the user of a certificate whose possession TLS has proved; 401 where it is not one of ours."""
        authorities = self._current()
        if authorities != self._authorities:
            self._authorities = authorities
            self._known.clear()
        known = self._known.get(der)
        if known is None:
            known = self._read(der)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[der] = known
        user, start, end = known
        if not start <= self._clock.now() <= end:
            raise unauthorized()
        return user

    def _read(self, der: bytes) -> tuple[UserInfo, datetime, datetime]:
        try:
            certificate = x509.load_der_x509_certificate(der)
        except ValueError as error:
            raise unauthorized() from error
        if not any(issued_by(certificate, ca) for ca in self._authorities) or not for_clients(certificate):
            raise unauthorized()
        try:
            user = subject_user(certificate.subject)
        except subjects.SubjectError as error:
            raise unauthorized() from error
        if not user.name:
            raise unauthorized()
        user.extra[CREDENTIAL_ID] = ("X509SHA256=" + hashlib.sha256(der).hexdigest(),)
        return user, certificate.not_valid_before_utc, certificate.not_valid_after_utc


def issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Say whether an authority signed a certificate (directly: there are no intermediates)."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def for_clients(certificate: x509.Certificate) -> bool:
    """Say whether a certificate's extended key usage allows it to be shown by a client."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def subject_user(subject: x509.Name) -> UserInfo:
    """Return the user that a certificate's or a request's subject names; SubjectError (a ValueError) where it names nobody."""
    found = subjects.read(subject)
    return UserInfo(found.name, found.uid, found.groups)
