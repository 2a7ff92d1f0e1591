"""RSA private keys whose numbers do not belong together.

A library that does not compare them computes with what it gets, so a key of 2048 bits can cost seconds for each signature.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa

from kube import pki
from tests.support.hostile_certificates import element, integer


@cache
def key() -> rsa.RSAPrivateKey:
    """Return the usual key that `pem` changes."""
    return rsa.generate_private_key(65537, 2048)


def odd(bits: int) -> int:
    """Return an odd number of so many bits."""
    return (1 << bits) - 1 - (1 << bits // 2)


def pem(**changes: int) -> bytes:
    """Return the key as PEM, some of its numbers n, e, d, p, q, dp, dq, qi changed."""
    private = key().private_numbers()
    usual = {
        "n": private.public_numbers.n,
        "e": private.public_numbers.e,
        "d": private.d,
        "p": private.p,
        "q": private.q,
        "dp": private.dmp1,
        "dq": private.dmq1,
        "qi": private.iqmp,
    }
    return encoded(*(usual | changes).values())


def encoded(*numbers: int) -> bytes:
    """Return a key of these numbers as PEM."""
    parts = b"".join(integer(each) for each in (0, *numbers))
    der = element(0x30, parts)
    return b"-----BEGIN RSA PRIVATE KEY-----\n" + base64.encodebytes(der) + b"-----END RSA PRIVATE KEY-----\n"


SLOW = {"p": odd(20_000), "dp": odd(19_992)}
"""A signature with this key takes seconds."""
INCONSISTENT: dict[str, dict[str, int]] = {
    "large p and dp": SLOW,
    "large q": {"q": odd(20_000)},
    "large d without primes": {"d": odd(40_000), "p": 0, "q": 0, "dp": 0, "dq": 0, "qi": 0},
    "large dq": {"dq": odd(30_000)},
    "large qi": {"qi": odd(30_000)},
    "even p": {"p": 1 << 1024},
    "p is 1": {"p": 1},
    "other d": {"d": 3},
    "other dp": {"dp": 3},
    "other dq": {"dq": 5},
    "other qi": {"qi": 1},
}


def pair() -> pki.KeyPair:
    """Return a certificate for the usual key."""
    return pki.new_ca("rsa", datetime.now(UTC), key=key())
