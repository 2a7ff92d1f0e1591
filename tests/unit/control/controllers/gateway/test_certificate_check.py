"""Check of certificates before nodes get them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from control.controllers.gateway.certificate_check import CHAIN, KEY, CertificateRefused, checked
from kube import pki
from kube.api import core_v1
from tests.support import hostile_certificates, rsa_keys

NOW = datetime.now(UTC)


def pem(key: object, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> bytes:
    encoded: bytes = key.private_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )
    return encoded


def secret(chain: bytes, key: bytes) -> core_v1.Secret:
    data = {CHAIN: base64.b64encode(chain).decode(), KEY: base64.b64encode(key).decode()}
    return core_v1.Secret(data=data, type="kubernetes.io/tls")


PAIR = pki.new_ca("test", NOW)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-521", "RSA"],
)
def test_a_certificate_with_its_key_is_copied(key: pki.PrivateKey) -> None:
    pair = pki.new_ca("test", NOW, key=key)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        data = checked(secret(b"text before\n" + pair.cert_pem + PAIR.cert_pem, pem(key, form) + b"text after"))
        assert base64.b64decode(data[CHAIN]) == pair.cert_pem + PAIR.cert_pem
        assert base64.b64decode(data[KEY]) == pem(key)


@pytest.mark.parametrize(
    ("chain", "key", "message"),
    [
        (b"", PAIR.key_pem, "0 certificates"),
        (PAIR.cert_pem * 9, PAIR.key_pem, "9 certificates"),
        (PAIR.cert_pem[:-30], PAIR.key_pem, "without an end"),
        (b"Hello world\n", b"Hello world\n", "0 certificates"),
        (PAIR.cert_pem, b"Hello world\n", "not an unencrypted private key"),
        (PAIR.cert_pem, PAIR.cert_pem, "not an unencrypted private key"),
        (PAIR.cert_pem, pki.encode_key(pki.new_key()), "not that of the certificate"),
        (PAIR.cert_pem, pem(rsa.generate_private_key(65537, 1024)), "RSA key of 1024 bits, not 2048 to 4096"),
        (PAIR.cert_pem, pem(ed25519.Ed25519PrivateKey.generate()), "not that of the certificate"),
        (PAIR.cert_pem, pem(ec.generate_private_key(ec.SECP224R1())), "is not a key of RSA"),
        (PAIR.cert_pem, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be decoded"),
        (b"x" * (64 << 10), PAIR.key_pem, "more than 32768 bytes"),
        (PAIR.cert_pem, b"x" * (64 << 10), "more than 8192 bytes"),
    ],
)
def test_what_a_node_could_not_serve_is_refused(chain: bytes, key: bytes, message: str) -> None:
    with pytest.raises(CertificateRefused, match=message):
        checked(secret(chain, key))


def test_a_secret_without_data_or_with_other_encodings_is_refused() -> None:
    with pytest.raises(CertificateRefused):
        checked(core_v1.Secret())
    with pytest.raises(CertificateRefused, match="not base64"):
        checked(core_v1.Secret(data={CHAIN: "a", KEY: "b"}))


def test_a_curve_without_a_name_is_refused_before_openssl_decodes_it() -> None:
    hostile = hostile_certificates.certificate(hostile_certificates.slow_key())
    with pytest.raises(CertificateRefused, match="explicit parameters"):
        checked(secret(hostile_certificates.pem(hostile), PAIR.key_pem))
    text = base64.encodebytes(hostile_certificates.slow_key())
    for label in (b"PRIVATE KEY", b"EC PRIVATE KEY"):
        key = b"-----BEGIN " + label + b"-----\n" + text + b"-----END " + label + b"-----\n"
        with pytest.raises(CertificateRefused, match="curve without a name"):
            checked(secret(PAIR.cert_pem, key))


@pytest.mark.parametrize("changes", rsa_keys.INCONSISTENT.values(), ids=rsa_keys.INCONSISTENT)
def test_an_rsa_key_whose_numbers_do_not_belong_together_is_refused(changes: dict[str, int]) -> None:
    """OpenSSL would compute with them in each handshake, seconds if they are large."""
    with pytest.raises(CertificateRefused, match="RSA key"):
        checked(secret(rsa_keys.pair().cert_pem, rsa_keys.pem(**changes)))


def test_an_rsa_key_with_a_large_exponent_or_primes_of_different_sizes_is_refused() -> None:
    usual = rsa_keys.key().private_numbers()
    p, q = rsa_keys.odd(1500), usual.q
    for n, e, d in ((usual.public_numbers.n, usual.d, 65537), (p * q, 65537, usual.d)):
        public = rsa.RSAPublicNumbers(e, n).public_key()
        certificate = hostile_certificates.certificate(
            public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        first = usual.p if n == usual.public_numbers.n else p
        key = rsa_keys.encoded(n, e, d, first, q, d % (first - 1), d % (q - 1), pow(q, -1, first))
        with pytest.raises(CertificateRefused, match="RSA key"):
            checked(secret(hostile_certificates.pem(certificate), key))


def test_the_primes_of_an_rsa_key_may_come_in_any_order() -> None:
    usual = rsa_keys.key().private_numbers()
    swapped = rsa_keys.pem(p=usual.q, q=usual.p, dp=usual.dmq1, dq=usual.dmp1, qi=pow(usual.p, -1, usual.q))
    assert checked(secret(rsa_keys.pair().cert_pem, swapped))[KEY]
