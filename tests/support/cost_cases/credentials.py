"""Credentials of clients and requests for them: certificates, signing requests, tokens."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.auth import certificates
from control.auth.token_signer import TokenSigner
from control.auth.x509 import CertificateAuthenticator
from control.registry.certificates.issued import certificate_problem
from tests.support.clock import FakeClock
from tests.support.cost import Case
from tests.support.cost_cases.inputs import HEAD, NOW, OBJECT, cases, fill

_KEY = functools.cache(lambda: ec.generate_private_key(ec.SECP256R1()))
_CA = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])


def _name(groups: int) -> x509.Name:
    found = [x509.NameAttribute(NameOID.COMMON_NAME, "system:node:a")]
    return x509.Name([*found, *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"g{i}") for i in range(groups))])


def _request(groups: int, names: int) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(groups))
    if names:
        alternative = x509.SubjectAlternativeName([x509.DNSName(f"n{i}") for i in range(names)])
        builder = builder.add_extension(alternative, critical=False)
    pem = builder.sign(_KEY(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def _certificate(subject: x509.Name) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_CA)
        .public_key(_KEY().public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(_KEY(), hashes.SHA256())
    )


REQUESTS: dict[str, Callable[[int], str]] = {
    "letters": fill("A"),
    "no end": lambda size: base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * (size * 3 // 4)).decode(),
    "beginnings": lambda size: base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n" * (size // 48)).decode(),
    "groups": lambda size: _request(size // 34, 0),
    "names": lambda size: _request(0, size // 14),
}


def request(text: str) -> str:
    return certificates.refusal("kubernetes.io/kubelet-serving", certificates.decode_request(text), {"server auth"})


def _issued(unit: bytes) -> Callable[[int], str]:
    return lambda size: base64.b64encode(unit * (size * 3 // 4 // len(unit))).decode()


ISSUED: dict[str, Callable[[int], str]] = {
    "beginnings": _issued(b"-----BEGIN A-----\n"),
    "beginnings of nothing": _issued(b"-----BEGIN -----\n"),
    "beginnings and ends of others": _issued(b"-----BEGIN A-----\n-----END B-----\n"),
    "beginnings before an end": lambda size: _issued(b"-----BEGIN A-----\n")(size) + "LS0tLS1FTkQgQi0tLS0tCg==",
    "ends": _issued(b"-----END A-----\n"),
    "blocks": _issued(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
    "dashes": _issued(b"-"),
    "line breaks": _issued(b"\n"),
}


def client(der: bytes) -> object:
    return CertificateAuthenticator(lambda: [_certificate(_CA)], FakeClock(NOW)).user(der)


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


TOKENS: dict[str, Callable[[int], str]] = {
    "letters": fill("a"),
    "dots": fill("."),
    "parts": fill("e30."),
    "a head of brackets": lambda size: _part(b"[" * (size * 3 // 4)) + ".e30.e30",
    "a head of fields": lambda size: _part(b'{"alg":"ES256"%b}' % (b',"a":1' * (size // 8))) + ".e30.e30",
    "a long key": lambda size: _part(b'{"alg":"ES256","kid":"%b"}' % (b"a" * (size * 3 // 4))) + ".e30.e30",
    "claims of brackets": lambda size: ".".join((_part(b'{"alg":"ES256"}'), _part(b"[" * (size * 3 // 4)), "e30")),
    "a long signature": lambda size: _part(b'{"alg":"ES256"}') + ".e30." + "A" * size,
}
CASES: list[Case] = [
    *cases("certificate request", REQUESTS, request, largest=HEAD),
    *cases("issued certificate", ISSUED, certificate_problem, largest=OBJECT),
    *cases(
        "client certificate",
        {
            "bytes": bytes,
            "groups": lambda size: _certificate(_name(size // 17)).public_bytes(serialization.Encoding.DER),
        },
        client,
        largest=HEAD,
    ),
    *cases("token", TOKENS, lambda token: TokenSigner(_KEY()).verify(token), largest=HEAD),
]
