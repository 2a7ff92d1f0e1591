"""Check of the Secrets that listeners and Ingresses name; nodes get only certificates that they can serve at a known cost.

Handshakes are computed on the nodes with the keys of users, and OpenSSL decodes some keys for seconds, so their kinds and
sizes are limited before it sees them. A copy contains what was checked, encoded again.
"""

from __future__ import annotations

import base64
import binascii

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from kube import peer_certificates
from kube.api import core_v1

TYPE, CHAIN, KEY = "kubernetes.io/tls", "tls.crt", "tls.key"
MOST_BYTES, MOST_KEY_BYTES, MOST_CERTIFICATES = 32 << 10, 8 << 10, 8
"""Bytes of a chain and of a key as PEM, and certificates of a chain."""
RSA_BITS = (2048, 4096)
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_FIELD_TYPE = bytes.fromhex("06072a8648ce3d01")
"""In DER, begins the parameters of an elliptic curve that has no name; OpenSSL takes half a second for some."""


class CertificateRefused(ValueError):
    """A Secret is not a certificate that can be served; the message is the reason."""


def checked(secret: core_v1.Secret) -> dict[str, str]:
    """Return the data of a copy of a Secret; raises CertificateRefused."""
    chain = _field(secret, CHAIN, MOST_BYTES)
    key = _field(secret, KEY, MOST_KEY_BYTES)
    try:
        certificates = _certificates(chain)
        private = _key(key)
        if _public(private.public_key()) != _public(certificates[0].public_key()):
            raise CertificateRefused("the key is not that of the certificate")
    except CertificateRefused:
        raise
    except Exception as error:  # cryptography has no common type for what it cannot decode or does not support
        raise CertificateRefused(f"it cannot be decoded: {error}") from error
    text = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    encoded = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
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


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def _key(text: bytes) -> PrivateKey:
    begin = text.find(b"-----BEGIN ")
    label = text[begin + 11 :].partition(b"-----")[0]
    body = text[begin:].partition(label + b"-----")[2].partition(b"-----END ")[0]
    if label not in (b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"):
        raise CertificateRefused(f"{KEY} is not an unencrypted private key")
    der = base64.b64decode(b"".join(body.split()), validate=True)
    if label != b"RSA PRIVATE KEY" and _FIELD_TYPE in der:
        raise CertificateRefused(f"{KEY} has an elliptic curve without a name")
    key = serialization.load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    if isinstance(key, rsa.RSAPrivateKey):
        if not RSA_BITS[0] <= key.key_size <= RSA_BITS[1]:
            raise CertificateRefused(f"an RSA key has {RSA_BITS[0]} to {RSA_BITS[1]} bits, not {key.key_size}")
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in ("secp256r1", "secp384r1", "secp521r1"):
        return key
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    raise CertificateRefused(f"{KEY} is not a key of RSA, of the curves P-256, P-384 and P-521, or Ed25519")


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded
