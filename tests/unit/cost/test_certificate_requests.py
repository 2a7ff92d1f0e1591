"""Certificate requests of many parts: those of a limited length are decoded, once and not on the event loop."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import cache

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from control.admission.certificates import CertificateSubjectRestriction
from control.admission.node_restriction import NodeRestriction
from control.auth import certificates
from control.auth.authorizers import AlwaysDeny
from control.auth.user import UserInfo
from control.interfaces.admission import Plugin
from control.registry.strategies import strategy_for
from kube import pki
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import by_path
from tests.support.cost import Lines
from tests.support.hostile_certificates import element, integer
from tests.support.lookup import Objects, attributes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = "certificatesigningrequests.certificates.k8s.io"
NODE = UserInfo("system:node:n1", groups=("system:nodes", "system:authenticated"))
JANE = UserInfo("jane", groups=("system:authenticated",))
_CN, _O, _OU = (bytes.fromhex(number) for number in ("0603550403", "060355040a", "060355040b"))
_ECDSA = element(0x30, bytes.fromhex("06082a8648ce3d040302"))
CASES = [(JANE, certificates.CLIENT), (NODE, certificates.KUBELET_SERVING), (NODE, certificates.KUBELET_CLIENT)]
MOST_LINES = 4000
"""Those of a request of 64 000 parts were two millions."""


def whole(tag: int, *parts: bytes) -> bytes:
    """Return a DER element of any length."""
    body = b"".join(parts)
    return bytes([tag, 0x83]) + len(body).to_bytes(3, "big") + body if len(body) > 0xFFFF else element(tag, body)


@cache
def request(parts: int) -> str:
    """Return a request for system:node:n1 with so many parts of its subject, as spec.request."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo

    def named(kind: bytes, text: bytes) -> bytes:
        return element(0x31, element(0x30, kind, element(0x0C, text)))

    name = named(_CN, b"system:node:n1") + named(_O, b"system:nodes") + named(_OU, b"a") * parts
    info = whole(0x30, integer(0), whole(0x30, name), key.public_key().public_bytes(*form), element(0xA0))
    signature = element(3, b"\0" + key.sign(info, ec.ECDSA(hashes.SHA256())))
    text = base64.encodebytes(whole(0x30, info, _ECDSA, signature)).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{text}-----END CERTIFICATE REQUEST-----\n"
    return base64.b64encode(pem.encode()).decode()


def csr(text: str, signer: str) -> Object:
    spec = {"signerName": signer, "request": text, "usages": ["client auth"]}
    return {"metadata": {"name": "c"}, "spec": spec}


def plugin(user: UserInfo) -> Plugin:
    if user is JANE:
        return CertificateSubjectRestriction()
    return NodeRestriction(Objects(), AlwaysDeny())


@pytest.mark.parametrize(("user", "signer"), CASES)
async def test_admission_does_not_decode_a_request_that_is_too_long(user: UserInfo, signer: str) -> None:
    text = request(64_000)
    with Lines() as lines, pytest.raises(StatusError, match="the request has more than 32768 characters") as caught:
        await plugin(user).validate(attributes(TARGET, obj=csr(text, signer), user=user))
    assert caught.value.code == 403 and lines.count < MOST_LINES


@pytest.mark.parametrize(("user", "signer"), CASES)
async def test_admission_decodes_a_long_request_once_and_not_on_the_event_loop(
    user: UserInfo, signer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = request(1200)
    assert 20_000 < len(text) <= certificates.LONGEST_REQUEST
    decoded: list[str] = []
    decode = certificates.decode_request

    def decoding(text: str) -> object:
        decoded.append(text)
        return decode(text)

    monkeypatch.setattr(certificates, "decode_request", decoding)
    certificates.requested_user.cache_clear()
    tested, shown = plugin(user), attributes(TARGET, obj=csr(text, signer), user=user)
    await plugin(user).validate(attributes(TARGET, obj=csr(request(1), signer), user=user))  # starts the thread
    decoded.clear()
    with Lines() as lines:
        await tested.admit(shown)
        await tested.validate(shown)
    assert len(decoded) == 1 and lines.count < MOST_LINES


@pytest.mark.parametrize("signer", certificates.SIGNERS[:3])
def test_a_request_that_is_too_long_is_invalid_for_signers_of_ours(signer: str) -> None:
    resource = by_path("certificates.k8s.io", "v1", "certificatesigningrequests")
    assert resource is not None
    strategy, obj = strategy_for(resource), csr(request(64_000), signer)
    with Lines() as lines:
        found = [str(error) for error in strategy.validate(obj)]
    assert any("the request has more than 32768 characters" in error for error in found) and lines.count < MOST_LINES


def test_the_signer_does_not_decode_a_request_that_is_too_long() -> None:
    ca = pki.new_ca("kubernetes", NOW)
    with Lines() as lines, pytest.raises(ValueError, match="more than 32768 characters"):
        certificates.sign_request(ca, csr(request(64_000), certificates.CLIENT)["spec"], NOW)
    assert lines.count < MOST_LINES
