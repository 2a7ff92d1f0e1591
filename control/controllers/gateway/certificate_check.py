"""Check of the Secrets that listeners and Ingresses name; nodes get only certificates that they can serve at a known cost.

Handshakes are computed on the nodes with the keys of users, so their kinds, sizes and numbers are limited
(`kube/gateway/private_keys.py`). A copy contains what was checked, encoded again.
"""

from __future__ import annotations

import base64
import binascii

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kube import peer_certificates
from kube.api import core_v1
from kube.gateway import private_keys

TYPE, CHAIN, KEY = "kubernetes.io/tls", "tls.crt", "tls.key"
MOST_BYTES, MOST_KEY_BYTES, MOST_CERTIFICATES = 32 << 10, 8 << 10, 8
"""Bytes of a chain and of a key as PEM, and certificates of a chain."""
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


class CertificateRefused(ValueError):
    """A Secret is not a certificate that can be served; the message is the reason."""


def checked(secret: core_v1.Secret) -> dict[str, str]:
    """Return the data of a copy of a Secret; raises CertificateRefused."""
    chain = _field(secret, CHAIN, MOST_BYTES)
    key = _field(secret, KEY, MOST_KEY_BYTES)
    try:
        certificates = _certificates(chain)
        private = private_keys.decode(key)
        if _public(private.public_key()) != _public(certificates[0].public_key()):
            raise CertificateRefused("the key is not that of the certificate")
    except CertificateRefused:
        raise
    except private_keys.KeyRefused as error:
        raise CertificateRefused(f"{KEY} {error}") from error
    except Exception as error:  # cryptography has no common type for what it cannot decode or does not support
        raise CertificateRefused(f"it cannot be decoded: {error}") from error
    text = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    encoded = private_keys.encode(private)
    return {CHAIN: base64.b64encode(text).decode(), KEY: base64.b64encode(encoded).decode()}


def _field(secret: core_v1.Secret, name: str, most: int) -> bytes:
    text = secret.data.get(name, "")
    if len(text) > most * 3 // 2:
        raise CertificateRefused(f"{name} has more than {most} bytes")
    try:
        return base64.b64decode(text)
    except binascii.Error as error:
        raise CertificateRefused(f"{name} is not base64") from error


def _certificates(text: bytes) -> list[x509.Certificate]:
    parts = text.split(_BEGIN)[1:]
    if not 0 < len(parts) <= MOST_CERTIFICATES:
        raise CertificateRefused(f"{CHAIN} has {len(parts)} certificates, not 1 to {MOST_CERTIFICATES}")
    found = []
    for part in parts:
        body, end, _ = part.partition(_END)
        if not end:
            raise CertificateRefused(f"{CHAIN} has a certificate without an end")
        der = base64.b64decode(b"".join(body.split()), validate=True)
        peer_certificates.check(der)
        found.append(x509.load_der_x509_certificate(der))
    return found


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
