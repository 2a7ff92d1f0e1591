"""The TLS settings of served ports, by handshakes in memory."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kube import pki, tls_groups, tls_settings
from tests.support.handshake import between, shake
from tests.support.slow_clients import client_hello

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> pki.KeyPair:
    return pki.new_ca("ca", NOW)


@pytest.fixture(scope="module")
def certificate(authority: pki.KeyPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "pair.pem"
    pair = pki.issue(authority, "server", usages=(pki.SERVER,), sans=("localhost",), now=NOW)
    file.write_bytes(pair.key_pem + pair.cert_pem)
    return file


@pytest.fixture
def server(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_by_default_tls_1_2_has_only_suites_with_forward_secrecy_and_authenticated_encryption(
    server: ssl.SSLContext, authority: pki.KeyPair
) -> None:
    tls_settings.apply(server)
    old = [suite["name"] for suite in server.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    assert sorted(old) == sorted(tls_settings.STRONG.values())
    assert shake(server, authority.cert_pem)[0] == "TLSv1.3"
    assert shake(server, authority.cert_pem, newest=ssl.TLSVersion.TLSv1_2)[0] == "TLSv1.2"
    for weak in ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "AES128-GCM-SHA256"):
        with pytest.raises(ssl.SSLError):
            shake(server, authority.cert_pem, weak, ssl.TLSVersion.TLSv1_2)


def test_a_server_sends_the_certificates_of_its_file_alone(
    server: ssl.SSLContext, authority: pki.KeyPair, certificate: Path, tmp_path: Path
) -> None:
    """OpenSSL would otherwise add the issuer, which it finds among the authorities of clients."""
    with_issuer = tmp_path / "chain.pem"
    with_issuer.write_bytes(certificate.read_bytes() + authority.cert_pem)
    longer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    longer.load_cert_chain(with_issuer)
    for context in (server, longer):
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=authority.cert_pem.decode())
        tls_settings.apply(context)
    assert chain_bytes(longer) - chain_bytes(server) > len(ssl.PEM_cert_to_DER_cert(authority.cert_pem.decode()))


def chain_bytes(server: ssl.SSLContext) -> int:
    """Return how many bytes a server answers to a client's first message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(client_hello())
    with contextlib.suppress(ssl.SSLWantReadError):
        server.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return len(outgoing.read())


def test_suites_are_chosen_by_gos_names(server: ssl.SSLContext, authority: pki.KeyPair) -> None:
    tls_settings.apply(server, ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"], "VersionTLS12")
    assert shake(server, authority.cert_pem, newest=ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        shake(server, authority.cert_pem, "ECDHE-ECDSA-AES256-GCM-SHA384", ssl.TLSVersion.TLSv1_2)
    assert shake(server, authority.cert_pem)[0] == "TLSv1.3"


@pytest.mark.parametrize(
    ("suites", "minimum"),
    [((), "VersionTLS13"), (("TLS_AES_128_GCM_SHA256",), "VersionTLS12")],
    ids=["version", "suites"],
)
def test_tls_1_2_can_be_shut_out(
    server: ssl.SSLContext, authority: pki.KeyPair, suites: tuple[str, ...], minimum: str
) -> None:
    tls_settings.apply(server, suites, minimum)
    assert shake(server, authority.cert_pem)[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        shake(server, authority.cert_pem, newest=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(
    ("suites", "minimum", "why"),
    [
        (["TLS_NONE"], "", "Cipher suite TLS_NONE not supported or doesn't exist"),
        (["TLS_RSA_WITH_RC4_128_SHA"], "", "this machine's OpenSSL does not have it"),
        ([], "VersionTLS14", 'unknown tls version "VersionTLS14"'),
        ([], "VersionTLS11", "TLS 1.2 and 1.3 are served"),
    ],
)
def test_what_cannot_be_had_is_refused(server: ssl.SSLContext, suites: list[str], minimum: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tls_settings.apply(server, suites, minimum)


def test_unwise_choices_are_named() -> None:
    assert tls_settings.warnings(["TLS_RSA_WITH_AES_128_CBC_SHA", *tls_settings.STRONG], "VersionTLS12") == [
        "cipher suite TLS_RSA_WITH_AES_128_CBC_SHA is insecure"
    ]
    assert "no effect" in tls_settings.warnings(list(tls_settings.STRONG), "VersionTLS13")[0]


def test_every_name_of_openssl_is_one_that_openssl_knows() -> None:
    """A misspelt name would look like a suite that was built out; those are known by their ciphers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in {**tls_settings.SUITES, **tls_settings.INSECURE}.values():
        if "RC4" not in name and "DES" not in name:
            context.set_ciphers(name)
            assert name in [suite["name"] for suite in context.get_ciphers()]


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_a_server_computes_no_finite_field_exchange(server: ssl.SSLContext, group: str) -> None:
    tls_settings.apply(server)
    with pytest.raises(ssl.SSLError, match="NO_SUITABLE_KEY_SHARE"):
        between(offering(group), server)


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384"])
def test_a_server_takes_each_usual_curve(server: ssl.SSLContext, group: str) -> None:
    tls_settings.apply(server)
    between(offering(group), server)


@pytest.mark.parametrize("client", ["unchecked", "verifying"])
def test_a_client_computes_no_finite_field_exchange(server: ssl.SSLContext, client: str) -> None:
    server.maximum_version = ssl.TLSVersion.TLSv1_3
    tls_groups.limit(server, "ffdhe8192")
    with pytest.raises(ssl.SSLError, match=r"NO_SUITABLE|NO_SHARED"):
        between(tls_settings.unchecked() if client == "unchecked" else tls_settings.verifying(), server)


@pytest.mark.parametrize("client", ["unchecked", "verifying"])
def test_a_client_offers_no_suite_of_tls_1_2_with_a_finite_field_exchange(client: str) -> None:
    """Python's servers have no DH parameters, so a handshake would not show it."""
    context = tls_settings.unchecked() if client == "unchecked" else tls_settings.verifying()
    exchanges = {str(suite["kea"]) for suite in context.get_ciphers() if suite["protocol"] == "TLSv1.2"}
    assert exchanges == {"kx-ecdhe"}


def test_if_openssl_has_no_list_of_curves_only_p_256_is_offered(
    server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_groups, "_control", lambda: None)
    tls_settings.apply(server)
    monkeypatch.undo()
    between(offering("P-256"), server)
    with pytest.raises(ssl.SSLError, match="NO_SUITABLE_KEY_SHARE"):
        between(offering("X25519"), server)


def test_all_tls_settings_are_made_where_groups_are_limited() -> None:
    """Others would offer OpenSSL's defaults."""
    root = Path(tls_settings.__file__).parents[1]
    allowed = {
        "kube/tls_settings.py",
        "control/auth/configuration.py",  # reads a certificate
        "control/admission/webhooks/credentials.py",  # tries a certificate
        "wherry/security/ports.py",  # looks at what ports take
    }
    found = set()
    for folder in ("agent", "control", "cri", "kube", "netproxy", "wherry"):
        for file in (root / folder).rglob("*.py"):
            text = file.read_text()
            made = (
                "create_default_context(" in text
                or "SSLContext(ssl.PROTOCOL_TLS_CLIENT)" in text
                or "ssl=False" in text
            )
            served = "SSLContext(ssl.PROTOCOL_TLS_SERVER)" in text and "tls_settings.apply(" not in text
            if made or served:
                found.add(str(file.relative_to(root)))
    assert found <= allowed


def offering(groups: str) -> ssl.SSLContext:
    """Return a client's settings that offer these groups and verify nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    tls_groups.limit(context, groups)
    return context
