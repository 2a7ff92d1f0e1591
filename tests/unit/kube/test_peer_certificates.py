"""Certificates of a peer: costly public keys and long chains are refused unread, all that Go takes is taken."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from kube import client_authorities, peer_certificates, pki, step_limit, tls_settings
from kube.peer_certificates import CertificateRefused
from tests.support import hostile_certificates as hostile
from tests.support.handshake import between

NOW = datetime.now(UTC)
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
KEYS = {
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "P-224": lambda: ec.generate_private_key(ec.SECP224R1()),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def issued(subject: str, issuer: str, key: object, signer: object, *, authority: bool = True) -> x509.Certificate:
    built = x509.CertificateBuilder(name(issuer), name(subject), key.public_key(), x509.random_serial_number())  # type: ignore[attr-defined]
    built = built.not_valid_before(NOW - timedelta(hours=1)).not_valid_after(NOW + timedelta(hours=1))
    built = built.add_extension(x509.BasicConstraints(authority, None), critical=True)
    if not authority:
        built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    return built.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())  # type: ignore[arg-type]


def der(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize("kind", KEYS)
def test_a_certificate_with_a_key_that_go_takes_is_taken(kind: str) -> None:
    key = KEYS[kind]()
    peer_certificates.check(der(issued("a", "a", key, key)))


REFUSED = {
    "explicit parameters": hostile.slow_key(),
    "a compressed point": hostile.public_key(hostile.P256, b"\2" + bytes(32)),
    "a point of another curve": hostile.public_key(hostile.P256, b"\4" + bytes(96)),
    "another curve": hostile.public_key(bytes.fromhex("06052b8104000a"), b"\4" + bytes(64)),
    "no curve": hostile.public_key(b"", b"\4" + bytes(64)),
    "two curves": hostile.public_key(hostile.P256 + hostile.P256, b"\4" + bytes(64)),
    "another algorithm": hostile.public_key(hostile.P256, b"\4" + bytes(64)).replace(b"\x3d\2\1", b"\x3d\2\2"),
}


@pytest.mark.parametrize("key", REFUSED.values(), ids=REFUSED.keys())
def test_another_key_is_refused(key: bytes) -> None:
    with pytest.raises(CertificateRefused):
        peer_certificates.check(hostile.certificate(key))


def test_a_key_of_dsa_is_refused() -> None:
    key = dsa.generate_private_key(1024)
    with pytest.raises(CertificateRefused):
        peer_certificates.check(der(issued("a", "a", key, key)))


def test_a_certificate_that_is_no_strict_der_is_refused() -> None:
    whole = hostile.certificate(hostile.public_key(hostile.P256, b"\4" + bytes(64)))
    peer_certificates.check(whole)
    assert whole[1] == 0x81
    for other in (
        b"\x30\x82\0" + whole[2:],  # a length with a leading zero
        b"\x30\x80" + whole[3:] + b"\0\0",  # a length that is found at the end
        b"\x31" + whole[1:],
        whole + b"\0",
        *(whole[:size] for size in range(100)),
    ):
        with pytest.raises(CertificateRefused):
            peer_certificates.check(other)


def test_no_bytes_fail_in_another_way() -> None:
    """Whatever else is raised refuses the certificate as well, and would be a mistake."""
    chance = random.Random(1)
    whole = hostile.certificate(hostile.slow_key())
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        size = len(changed).to_bytes(3, "big")
        for body, version in ((bytes(3) + size + changed, 0x303), (bytes(4) + size + changed + b"\0\0", 0x304)):
            try:
                peer_certificates.check_message(bytes(body), version)
            except CertificateRefused:
                pass


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0", b"\xff\0\0"])
@pytest.mark.parametrize("version", [0x303, 0x304])
def test_a_message_without_certificates_is_left_to_openssl(body: bytes, version: int) -> None:
    peer_certificates.check_message(body, version)


# -- handshakes ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a usual certificate and its key."""
    file = tmp_path_factory.mktemp("usual") / "pair.pem"
    pair = pki.issue(pki.new_ca("ca", NOW), "usual", usages=(pki.SERVER, pki.CLIENT), sans=("localhost",), now=NOW)
    file.write_bytes(pair.key_pem + pair.cert_pem)
    return file


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return hostile.chain(tmp_path_factory.mktemp("evil"), 3)


def limited_server(usual: Path) -> ssl.SSLContext:
    """Return the settings of a server that asks for a certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(server)
    server.load_cert_chain(usual)
    client_authorities.accept(server, usual)
    return server


def any_client() -> ssl.SSLContext:
    """Return the settings of a client that has no limits."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return client


def any_server(*files: Path) -> ssl.SSLContext:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files)
    return server


@VERSIONS
def test_a_client_does_not_read_slow_certificates(evil: tuple[Path, Path], version: ssl.TLSVersion) -> None:
    server = any_server(*evil)
    server.maximum_version = version
    for client in (tls_settings.unchecked(), tls_settings.verifying()):
        start = time.thread_time()
        with pytest.raises(ssl.SSLError, match="LENGTH_MISMATCH"):
            between(client, server)
        assert time.thread_time() - start < 0.1


@VERSIONS
def test_a_server_does_not_read_slow_certificates(
    usual: Path, evil: tuple[Path, Path], version: ssl.TLSVersion
) -> None:
    server, client = limited_server(usual), any_client()
    client.load_cert_chain(*evil)
    client.maximum_version = version
    start = time.thread_time()
    with pytest.raises(ssl.SSLError, match=r"LENGTH_MISMATCH|INVALID_CONTEXT"):
        between(client, server)
    assert time.thread_time() - start < 0.1


@pytest.fixture(scope="module")
def long_chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bytes]]:
    """Return a file with a chain of four certificates with RSA keys of 4096 bits and the key, and the authority."""
    key = rsa.generate_private_key(65537, 4096)
    names = ["root", "one", "two", "three", "leaf"]
    made = [issued(names[i], names[i - 1], key, key, authority=i < 4) for i in range(1, 5)]
    file = tmp_path_factory.mktemp("long") / "chain.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = [each.public_bytes(serialization.Encoding.PEM) for each in reversed(made)]
    file.write_bytes(private + b"".join(pem))
    assert 4500 < sum(len(der(each)) for each in made) < peer_certificates.OF_CLIENTS
    yield file, issued("root", "root", key, key).public_bytes(serialization.Encoding.PEM)


@VERSIONS
def test_a_chain_of_four_large_certificates_is_verified_by_both_sides(
    usual: Path, long_chain: tuple[Path, bytes], tmp_path: Path, version: ssl.TLSVersion
) -> None:
    file, authority = long_chain
    server = limited_server(file)
    (tmp_path / "ca").write_bytes(authority)
    client_authorities.accept(server, tmp_path / "ca")
    client = tls_settings.verifying(cadata=authority.decode())
    client.load_cert_chain(file)
    client.maximum_version = version
    between(client, server)


@pytest.mark.parametrize("count", [5, 12])
def test_a_longer_chain_is_refused(usual: Path, long_chain: tuple[Path, bytes], tmp_path: Path, count: int) -> None:
    file = tmp_path / "chain.pem"
    last = long_chain[0].read_bytes().partition(b"-----BEGIN CERT")
    file.write_bytes(b"".join(last) + count * (b"-----BEGIN CERT" + last[2].rpartition(b"-----BEGIN CERT")[2]))
    client = any_client()
    client.load_cert_chain(file)
    with pytest.raises(ssl.SSLError, match="EXCESSIVE_MESSAGE_SIZE"):
        between(client, limited_server(usual))
    if count == 5:
        between(tls_settings.unchecked(), any_server(file))
        return
    with pytest.raises(ssl.SSLError, match="EXCESSIVE_MESSAGE_SIZE"):
        between(tls_settings.unchecked(), any_server(file))
    with pytest.raises(ssl.SSLError, match="LENGTH_MISMATCH"):
        between(tls_settings.verifying(), any_server(file))


def test_more_certificates_than_a_chain_has_are_refused(usual: Path, tmp_path: Path) -> None:
    key, whole = tmp_path / "key", usual.read_bytes()
    key.write_bytes(whole)
    shown = tmp_path / "shown"
    shown.write_bytes(whole[whole.index(b"-----BEGIN CERT") :] * 17)
    with pytest.raises(ssl.SSLError, match="LENGTH_MISMATCH"):
        between(tls_settings.unchecked(), any_server(shown, key))


def test_an_exception_within_the_check_refuses_the_certificates(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a step of a task takes too long, which a signal handler finds."""

    def stopped(*_: object) -> None:
        raise BaseException

    monkeypatch.setattr(peer_certificates, "check_message", stopped)
    with pytest.raises(ssl.SSLError, match="LENGTH_MISMATCH"):
        between(tls_settings.unchecked(), any_server(usual))


def test_no_step_is_stopped_where_the_exception_would_be_lost() -> None:
    assert peer_certificates._inspect.__code__ in step_limit.unstopped
