from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.auth import certificates
from control.registry.strategies import strategy_for
from control.registry.strategy_context import Settings
from kube import pki, resources, subjects
from kube.api import certificates_v1

NOW = datetime(2026, 5, 1, tzinfo=UTC)
CLIENT_USAGES = ["digital signature", "client auth"]
SERVER_USAGES = ["digital signature", "server auth"]


def spec(signer: str, pem: bytes, usages: list[str], **more: Any) -> dict[str, Any]:
    return {"signerName": signer, "request": base64.b64encode(pem).decode(), "usages": usages, **more}


def request(name: str, *groups: str, sans: tuple[str, ...] = ()) -> bytes:
    return pki.new_request(pki.new_key(), name, groups, sans)


NODE = ("system:node:n1", "system:nodes")


@pytest.mark.parametrize(
    "signer, pem, usages, why",
    [
        (certificates.CLIENT, request("jane", "dev"), CLIENT_USAGES, ""),
        (certificates.CLIENT, request("jane"), ["server auth"], "usages did not match"),
        (certificates.KUBELET_CLIENT, request(*NODE), CLIENT_USAGES, ""),
        (certificates.KUBELET_CLIENT, request(*NODE), [*CLIENT_USAGES, "key encipherment"], ""),
        (certificates.KUBELET_CLIENT, request(*NODE), SERVER_USAGES, "usages did not match"),
        (certificates.KUBELET_CLIENT, request(*NODE, "more"), CLIENT_USAGES, "organization is not system:nodes"),
        (certificates.KUBELET_CLIENT, request("jane", "system:nodes"), CLIENT_USAGES, "common name"),
        (certificates.KUBELET_CLIENT, request(*NODE, sans=("n1",)), CLIENT_USAGES, "DNS names are not allowed"),
        (certificates.KUBELET_CLIENT, request(*NODE, sans=("10.0.0.1",)), CLIENT_USAGES, "IP addresses"),
        (certificates.KUBELET_SERVING, request(*NODE, sans=("n1", "10.0.0.1")), SERVER_USAGES, ""),
        (certificates.KUBELET_SERVING, request(*NODE), SERVER_USAGES, "at least one DNS name or IP address"),
        (certificates.KUBELET_SERVING, request(*NODE, sans=("n1",)), CLIENT_USAGES, "usages did not match"),
        (certificates.LEGACY_UNKNOWN, request("anything"), ["any"], ""),
        ("example.com/signer", request("x"), CLIENT_USAGES, "unrecognized signerName"),
    ],
)
def test_signers_take_what_is_theirs(signer: str, pem: bytes, usages: list[str], why: str) -> None:
    found = certificates.refusal(signer, x509.load_pem_x509_csr(pem), set(usages))
    assert (why in found) if why else not found


def test_a_signed_certificate_has_the_requested_duration() -> None:
    ca = pki.new_ca("kubernetes", NOW)
    pem = request(*NODE, sans=("n1", "10.0.0.1"))
    wanted = spec(certificates.KUBELET_SERVING, pem, SERVER_USAGES, expirationSeconds=3600)
    made = x509.load_pem_x509_certificate(certificates.sign_request(ca, wanted, NOW))
    made.verify_directly_issued_by(ca.certificate)
    assert made.not_valid_after_utc == NOW + timedelta(hours=1)
    assert made.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    san = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert san.get_values_for_type(x509.DNSName) == ["n1"]
    assert made.public_key() == x509.load_pem_x509_csr(pem).public_key()


def test_what_a_signer_refuses_is_not_signed_even_when_approved() -> None:
    wanted = spec(certificates.KUBELET_CLIENT, request("jane", "system:masters"), CLIENT_USAGES)
    with pytest.raises(ValueError, match="organization is not system:nodes"):
        certificates.sign_request(pki.new_ca("kubernetes", NOW), wanted, NOW)


def with_names(subject: list[tuple[x509.ObjectIdentifier, str]], *sans: x509.GeneralName) -> bytes:
    found = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = x509.CertificateSigningRequestBuilder().subject_name(found)
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
    return builder.sign(pki.new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("signer", certificates.SIGNERS)
def test_no_signer_takes_a_request_that_names_two_users(signer: str) -> None:
    two = [(NameOID.COMMON_NAME, "admin"), (NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, NODE[0])]
    pem = with_names(two, x509.DNSName("n1"))
    usages = SERVER_USAGES if signer == certificates.KUBELET_SERVING else CLIENT_USAGES
    why = "the subject has more than one common name"
    assert certificates.refusal(signer, x509.load_pem_x509_csr(pem), set(usages)) == why
    with pytest.raises(ValueError, match=why):
        certificates.sign_request(pki.new_ca("kubernetes", NOW), spec(signer, pem, usages), NOW)


def test_a_request_whose_subject_names_nobody_is_refused() -> None:
    twice = [(NameOID.COMMON_NAME, "jane"), *[(subjects.UID, uid) for uid in ("1", "2")]]
    found = certificates.refusal(certificates.CLIENT, x509.load_pem_x509_csr(with_names(twice)), set(CLIENT_USAGES))
    assert found == "expected 1 UID, but found multiple: ('1', '2')"


def test_only_names_that_a_signer_looks_at_are_signed() -> None:
    other = x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")]))
    registered = x509.RegisteredID(x509.ObjectIdentifier("1.2.3"))
    subject = [(NameOID.COMMON_NAME, NODE[0]), (NameOID.ORGANIZATION_NAME, NODE[1])]
    pem = with_names(subject, x509.DNSName("n1"), other, registered)
    signed = certificates.sign_request(
        pki.new_ca("kubernetes", NOW), spec(certificates.KUBELET_SERVING, pem, SERVER_USAGES), NOW
    )
    assert pki.names_of(x509.load_pem_x509_certificate(signed)) == {x509.DNSName("n1")}


@pytest.mark.parametrize("text", ["%%%", base64.b64encode(b"nothing").decode(), ""])
def test_an_invalid_certificate_request_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        certificates.decode_request(text)


def odd_request(kind: str) -> bytes:
    """Return a request that cryptography has an error of its own for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    first, second = (x509.ObjectIdentifier(f"1.2.3.4.{number}") for number in (5, 6))
    if kind == "extension twice":
        for oid in (first, second):
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, b"\x05\x00"), critical=False)
    if kind == "name of an EDI party":
        names = x509.ObjectIdentifier("2.5.29.17")
        value = bytes.fromhex("3006a504a1020c00")
        builder = builder.add_extension(x509.UnrecognizedExtension(names, value), critical=False)
    der = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    changes = {
        "extension twice": ("06042a030406", "06042a030405"),
        "unknown curve": ("06082a8648ce3d030107", "06082a8648ce3d030106"),
        "unknown signature": ("06082a8648ce3d040302", "06082a8648ce3d04037f"),
        "unknown version": ("020100", "020107"),
    }
    old, new = (bytes.fromhex(text) for text in changes.get(kind, ("", "")))
    der = der.replace(old, new, 1) if old else der
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{text}-----END CERTIFICATE REQUEST-----\n".encode()


ODD = ["extension twice", "name of an EDI party", "unknown curve", "unknown signature", "unknown version"]


@pytest.mark.parametrize("kind", ODD)
def test_a_request_that_cannot_be_read_is_a_value_error(kind: str) -> None:
    text = base64.b64encode(odd_request(kind)).decode()
    with pytest.raises(ValueError) as caught:
        certificates.decode_request(text)
    assert type(caught.value) is ValueError and str(caught.value)
    with pytest.raises(ValueError):
        certificates.sign_request(pki.new_ca("kubernetes", NOW), spec(certificates.CLIENT, odd_request(kind), []), NOW)


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind != "unknown signature"])
def test_a_request_that_cannot_be_read_is_invalid_for_signers_of_ours(kind: str) -> None:
    strategy = strategy_for(resources.of(certificates_v1.CertificateSigningRequest), Settings())
    errors = strategy.validate({"spec": spec(certificates.CLIENT, odd_request(kind), CLIENT_USAGES)})
    assert [error.path for error in errors] == ["spec.request"]
