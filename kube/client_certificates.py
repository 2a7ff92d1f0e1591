"""Client certificates: user names, groups and validity.

A connection outlives the handshake in which TLS verified its client's certificate, and so does a TLS session that is resumed.
So servers compare the time with the certificate's for each request, as upstream's x509 authenticator does.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kube import subjects

_USAGES = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)


class NotForClients(ValueError):
    """A certificate authenticates no client: it is for something else, or its subject is invalid."""


class ClientCertificate(msgspec.Struct, frozen=True):
    """Subject of a client certificate (a name of "" is nobody), and its first and last second."""

    subject: subjects.Subject
    start: datetime
    end: datetime

    def valid(self, now: datetime) -> bool:
        """Return whether the certificate is valid at a time."""
        return self.start <= now <= self.end


def read(certificate: x509.Certificate) -> ClientCertificate:
    """Read a certificate that TLS has verified; raise NotForClients."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        subject = subjects.read(certificate.subject)
    except (x509.ExtensionNotFound, subjects.SubjectError) as error:
        raise NotForClients(str(error)) from error
    if not any(usage in usages for usage in _USAGES):
        raise NotForClients("the certificate is not for client authentication")
    return ClientCertificate(subject, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
