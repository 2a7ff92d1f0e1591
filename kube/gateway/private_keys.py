"""Private keys of users, decoded only if a handshake with them has a known cost.

OpenSSL computes with the numbers of a key as they are. It decodes some curves for half a second, and with an RSA key whose
primes or exponents are larger than its modulus each signature takes seconds. So only keys with named curves are accepted,
and with RSA numbers that follow from each other. That the primes are prime is not checked, which takes long: with others,
signatures take up to ten times as long as with a usual key of the same size.
"""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
RSA_BITS = (2048, 4096)
EXPONENT_BITS = 31
"""Bits of an RSA key's public exponent, as Go and Windows allow."""
UNBALANCED_BITS = 64
"""By how many bits the primes of an RSA key may differ: signatures take longer the larger the larger one is."""
_LABELS = b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"
_FIELD_TYPE = bytes.fromhex("06072a8648ce3d01")
"""In DER, begins the parameters of an elliptic curve that has no name."""


class KeyRefused(ValueError):
    """A key is not of a kind that is served; the message is the reason, and continues the name of the key."""


def decode(text: bytes) -> PrivateKey:
    """Return a key from PEM; raises KeyRefused, and other errors for what cryptography cannot decode."""
    begin = text.find(b"-----BEGIN ")
    label = text[begin + 11 :].partition(b"-----")[0]
    body = text[begin:].partition(label + b"-----")[2].partition(b"-----END ")[0]
    if label not in _LABELS:
        raise KeyRefused("is not an unencrypted private key")
    der = base64.b64decode(b"".join(body.split()), validate=True)
    if label != b"RSA PRIVATE KEY" and _FIELD_TYPE in der:
        raise KeyRefused("has an elliptic curve without a name")
    key = serialization.load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    if isinstance(key, rsa.RSAPrivateKey):
        _check(key)
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in ("secp256r1", "secp384r1", "secp521r1"):
        return key
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    raise KeyRefused("is not a key of RSA, of the curves P-256, P-384 and P-521, or Ed25519")


def encode(key: PrivateKey) -> bytes:
    """Return a key as PEM (PKCS#8)."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _check(key: rsa.RSAPrivateKey) -> None:
    """Raise KeyRefused unless the numbers of an RSA key are of usual sizes and follow from each other."""
    if not RSA_BITS[0] <= key.key_size <= RSA_BITS[1]:
        raise KeyRefused(f"is an RSA key of {key.key_size} bits, not {RSA_BITS[0]} to {RSA_BITS[1]}")
    found = key.private_numbers()
    n, e, d, p, q = found.public_numbers.n, found.public_numbers.e, found.d, found.p, found.q
    sizes = d.bit_length(), p.bit_length(), q.bit_length()
    if max(sizes) > key.key_size:  # compared first: the rest multiplies
        raise KeyRefused("is an RSA key with numbers larger than its modulus")
    if not (3 <= e < 1 << EXPONENT_BITS and e % 2):
        raise KeyRefused(f"is an RSA key with an exponent that is even, 1 or of more than {EXPONENT_BITS} bits")
    if p * q != n or p % 2 == 0 or q % 2 == 0 or abs(sizes[1] - sizes[2]) > UNBALANCED_BITS:
        raise KeyRefused("is an RSA key whose modulus is not the product of two odd primes of about the same size")
    fits = (e * d - 1) % (p - 1) == 0 == (e * d - 1) % (q - 1)
    crt = found.dmp1 == d % (p - 1) and found.dmq1 == d % (q - 1)
    if not (fits and crt and 0 < found.iqmp < p and found.iqmp * q % p == 1):
        raise KeyRefused("is an RSA key whose private exponents do not follow from its primes")
