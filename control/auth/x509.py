"""Client certificates: the common name is the user, the organizations are the groups.

TLS has verified that the peer has the key and that a trusted authority signed the certificate. Here it is verified that this is
*the client authority* (the listener also trusts the front-proxy authority, which must not authenticate users), that the
certificate is for client authentication, and that it is valid now. Parsing and verification take 0.2 ms, so the result is
cached by the DER bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from control.auth.user import Credentials, UserInfo
from kube import client_certificates, subjects
from kube.client_certificates import ClientCertificate
from kube.clock import Clock
from kube.errors import unauthorized

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_KEPT = 4096


class CertificateAuthenticator:
    """Accepts client certificates signed by one of the authorities, as they are now."""

    def __init__(self, authorities: Callable[[], Sequence[x509.Certificate]], clock: Clock) -> None:
        self._current, self._clock = authorities, clock
        self._authorities: Sequence[x509.Certificate] = ()
        self._known: dict[bytes, tuple[UserInfo, ClientCertificate]] = {}

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
        user, certificate = known
        if not certificate.valid(self._clock.now()):
            raise unauthorized()
        return user

    def _read(self, der: bytes) -> tuple[UserInfo, ClientCertificate]:
        try:
            certificate = x509.load_der_x509_certificate(der)
        except ValueError as error:
            raise unauthorized() from error
        if not any(issued_by(certificate, ca) for ca in self._authorities):
            raise unauthorized()
        try:
            found = client_certificates.read(certificate)
        except client_certificates.NotForClients as error:
            raise unauthorized() from error
        if not found.subject.name:
            raise unauthorized()
        user = _user(found.subject)
        user.extra[CREDENTIAL_ID] = ("X509SHA256=" + hashlib.sha256(der).hexdigest(),)
        return user, found


def issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Return whether an authority signed a certificate (directly: there are no intermediates)."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def subject_user(subject: x509.Name) -> UserInfo:
    """Return the user that a certificate's or a request's subject names; raises SubjectError (a ValueError) without a name."""
    return _user(subjects.read(subject))


def _user(subject: subjects.Subject) -> UserInfo:
    return UserInfo(subject.name, subject.uid, subject.groups)
