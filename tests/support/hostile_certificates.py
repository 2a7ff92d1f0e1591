"""Certificates that OpenSSL decodes or verifies slowly.

`chain`: compressed points on a curve with explicit parameters. The curve is over a prime p = k * 2**e + 1, and the point's
other coordinate is a square root modulo p, which takes Tonelli's and Shanks' algorithm e * e / 2 multiplications: 0.2 s for
e = 600. Nothing has to be signed.

`large_chain`: RSA keys with the largest modulus and exponent that OpenSSL accepts, 16384 and 64 bits, each of which signs the
next certificate. Such a signature takes 10 ms to verify. The modulus has many small primes, to sign quickly.
"""

from __future__ import annotations

import base64
import hashlib
import math
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kube import pki

PRIME = 133 * 2**600 + 1
_SIZE = (PRIME.bit_length() + 7) // 8
EC = bytes.fromhex("06072a8648ce3d0201")
RSA = bytes.fromhex("06092a864886f70d010101")
SHA256_RSA = bytes.fromhex("06092a864886f70d01010b0500")
P256 = bytes.fromhex("06082a8648ce3d030107")


def element(tag: int, *parts: bytes) -> bytes:
    """Return a DER element."""
    body = b"".join(parts)
    size = len(body)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    if 128 <= size < 256:
        length = bytes([0x81, size])
    return bytes([tag]) + length + body


def integer(number: int) -> bytes:
    """Return a number in DER."""
    return element(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


@cache
def slow_key() -> bytes:
    """Return the SubjectPublicKeyInfo of such a key."""
    coordinate = [element(4, number.to_bytes(_SIZE, "big")) for number in (5, 7)]
    point = b"\2" + (1).to_bytes(_SIZE, "big")
    field = element(0x30, bytes.fromhex("06072a8648ce3d0101"), integer(PRIME))
    curve = element(0x30, *coordinate)
    parameters = element(0x30, integer(1), field, curve, element(4, point), integer(PRIME - 2), integer(1))
    return public_key(parameters, point)


def public_key(parameters: bytes, point: bytes) -> bytes:
    """Return the SubjectPublicKeyInfo of an elliptic curve's key."""
    return element(0x30, element(0x30, EC, parameters), element(3, b"\0" + point))


def distinguished_name(text: str) -> bytes:
    """Return a name with one common name."""
    return element(0x30, element(0x31, element(0x30, bytes.fromhex("0603550403"), element(12, text.encode()))))


def certificate(key: bytes, number: int = 1, name: str = "") -> bytes:
    """Return the DER of a certificate with this key, without a valid signature."""
    subject = distinguished_name(name or f"c{number}")
    algorithm = element(0x30, bytes.fromhex("06082a8648ce3d040302"))
    dates = element(0x30, element(0x17, b"200101000000Z"), element(0x17, b"400101000000Z"))
    version = element(0xA0, integer(2))
    signed = element(0x30, version, integer(number), algorithm, subject, dates, subject, key)
    return element(0x30, signed, algorithm, element(3, b"\0" + element(0x30, integer(1), integer(1))))


def pem(der: bytes) -> bytes:
    """Return a certificate as PEM."""
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


def chain(directory: Path, count: int) -> tuple[Path, Path]:
    """Write a usual certificate with so many slow ones behind it, and its key; return the files.

    Reading the certificates takes OpenSSL 0.2 s each.
    """
    now = datetime.now(UTC)
    pair = pki.issue(pki.new_ca("evil", now), "evil", usages=(pki.SERVER, pki.CLIENT), sans=("127.0.0.1",), now=now)
    shown, key = directory / "evil.crt", directory / "evil.key"
    slow = [pem(certificate(slow_key(), number)) for number in range(1, count + 1)]
    shown.write_bytes(pair.certificate.public_bytes(serialization.Encoding.PEM) + b"".join(slow))
    key.write_bytes(pair.key_pem)
    return shown, key


# -- large keys ---------------------------------------------------------------------------------------------------
class LargeKey:
    """An RSA key of 16384 bits that signs certificates."""

    def __init__(self) -> None:
        self._primes: list[int] = []
        while len(self._primes) < 32:
            numbers = rsa.generate_private_key(65537, 1024).private_numbers()
            self._primes += [numbers.p, numbers.q]
        self._modulus = math.prod(self._primes)
        self._exponent = 2**64 - 1
        while any(math.gcd(self._exponent, prime - 1) > 1 for prime in self._primes):
            self._exponent -= 2
        number = element(0x30, integer(self._modulus), integer(self._exponent))
        self.public = element(0x30, element(0x30, RSA, b"\x05\0"), element(3, b"\0" + number))

    def _power(self, message: int) -> int:
        """Sign a number by the Chinese remainder theorem."""
        signed = 0
        for prime in self._primes:
            rest = self._modulus // prime
            part = pow(message, pow(self._exponent, -1, prime - 1), prime)
            signed += part * rest * pow(rest, -1, prime)
        return signed % self._modulus

    def issue(self, issuer: str, subject: str, key: bytes, extensions: bytes) -> bytes:
        """Return the DER of a certificate."""
        algorithm = element(0x30, SHA256_RSA)
        dates = element(0x30, element(0x17, b"200101000000Z"), element(0x17, b"400101000000Z"))
        names = distinguished_name(issuer), dates, distinguished_name(subject)
        version = element(0xA0, integer(2))
        signed = element(0x30, version, integer(1), algorithm, *names, key, element(0xA3, element(0x30, extensions)))
        digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(signed).digest()
        size = (self._modulus.bit_length() + 7) // 8
        padded = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
        signature = self._power(int.from_bytes(padded, "big")).to_bytes(size, "big")
        return element(0x30, signed, algorithm, element(3, b"\0" + signature))


def large_chain(directory: Path) -> tuple[Path, Path, bytes]:
    """Write a certificate for 127.0.0.1 with three authorities behind it, 15 KiB, and its key; return them, and the root's PEM.

    To verify the four signatures takes OpenSSL 40 ms.
    """
    authority = element(0x30, bytes.fromhex("0603551d13"), b"\1\1\xff", element(4, element(0x30, b"\1\1\xff")))
    alternative = element(0x30, element(0x87, bytes((127, 0, 0, 1))))
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    public = leaf_key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    keys = [LargeKey() for _ in range(4)]
    names = ["root", "large 1", "large 2", "large 3"]
    chained = [
        keys[index].issue(names[index], names[index + 1], keys[index + 1].public, authority) for index in range(3)
    ]
    leaf = keys[3].issue(names[3], "leaf", public, element(0x30, bytes.fromhex("0603551d11"), element(4, alternative)))
    root = keys[0].issue("root", "root", keys[0].public, authority)
    shown, key = directory / "large.crt", directory / "large.key"
    shown.write_bytes(b"".join(pem(each) for each in (leaf, *reversed(chained))))
    key.write_bytes(pki.encode_key(leaf_key))
    return shown, key, pem(root)
