"""TLS at a gateway: the certificate follows from the server name, and the route from the same hostname."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kube import pki
from netproxy.gateway.certificates import CertificateError, context_with, parse
from tests.support import rsa_keys
from tests.support.gateway_site import Site, backend, gateway, listener, rule, status

NOW = datetime.now(UTC)
AUTHORITY = pki.new_ca("gateway", NOW)


def secret(*names: str) -> dict[str, str]:
    """Return the data of a Secret with a certificate for hostnames."""
    made = pki.issue(AUTHORITY, names[0], usages=(pki.SERVER,), sans=names, now=NOW)
    return {
        "tls.crt": base64.b64encode(made.cert_pem).decode(),
        "tls.key": base64.b64encode(made.key_pem).decode(),
    }


def context_of(data: dict[str, str]) -> ssl.SSLContext:
    """Return the settings with the certificate of a Secret."""
    return context_with([parse(data)])


def client() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def fetch(site: Site, server_name: str | None, host: str) -> bytes:
    """Send a request over TLS and return the response."""
    tls = client()
    if server_name is None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=tls, server_hostname=server_name or "")
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_each_hostname_has_its_certificate_and_its_routes() -> None:
    contexts = {
        "a.example.com": context_of(secret("a.example.com")),
        "*.b.example.com": context_of(secret("*.b.example.com")),
    }
    listeners = (
        listener(rule(service="a"), hostname="a.example.com", tls=True),
        listener(rule(service="b"), hostname="*.b.example.com", tls=True),
    )
    async with backend() as a, backend() as b:
        services = {"a": [a.port], "b": [b.port]}
        async with gateway(*listeners, services=services, contexts=contexts) as site:
            assert status(await fetch(site, "a.example.com", "a.example.com")) == 200
            assert status(await fetch(site, "x.b.example.com", "x.b.example.com:443")) == 200
            assert a.requests[0].header("x-forwarded-proto") == "https" and len(b.requests) == 1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await fetch(site, "c.example.com", "a.example.com")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await fetch(site, None, "a.example.com")
            misdirected = await fetch(site, "a.example.com", "x.b.example.com")
            assert status(misdirected) == 421 and len(b.requests) == 1


async def test_a_listener_without_hostname_serves_clients_without_a_server_name() -> None:
    contexts = {"": context_of(secret("any.example.com"))}
    async with backend() as web:
        site_services = {"web": [web.port]}
        async with gateway(listener(rule(), tls=True), services=site_services, contexts=contexts) as site:
            assert status(await fetch(site, None, "192.0.2.1")) == 200
            assert status(await fetch(site, "any.example.com", "any.example.com")) == 200


async def test_a_new_certificate_is_served_to_new_connections_and_old_ones_stay() -> None:
    contexts = {"": context_of(secret("old.example.com"))}
    async with (
        backend() as web,
        gateway(listener(rule(), tls=True), services={"web": [web.port]}, contexts=contexts) as site,
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", site.port, ssl=client(), server_hostname="old.example.com"
        )
        site.contexts = {"": context_of(secret("new.example.com"))}
        await site.serve(listener(rule(), tls=True))
        assert status(await fetch(site, "new.example.com", "new.example.com")) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await fetch(site, "old.example.com", "old.example.com")
        writer.write(b"GET / HTTP/1.1\r\nHost: old.example.com\r\n\r\n")
        assert status(await reader.readuntil(b"ok")) == 200
        writer.close()


async def test_plain_http_on_a_tls_port_is_closed() -> None:
    contexts = {"": context_of(secret("a.example.com"))}
    async with gateway(listener(rule(), tls=True), services={}, contexts=contexts) as site:
        assert b"HTTP/1.1 200" not in await site.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


def _large_key() -> dict[str, str]:
    key = rsa.generate_private_key(65537, 4224)
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a")]), critical=True)
        .sign(key, pki.hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return {
        "tls.crt": base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode(),
        "tls.key": base64.b64encode(pem).decode(),
    }


def _encrypted_key() -> dict[str, str]:
    found = secret("a.example.com")
    key = serialization.load_pem_private_key(base64.b64decode(found["tls.key"]), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    return {**found, "tls.key": base64.b64encode(pem).decode()}


def _slow_key() -> dict[str, str]:
    return {
        "tls.crt": base64.b64encode(rsa_keys.pair().cert_pem).decode(),
        "tls.key": base64.b64encode(rsa_keys.pem(**rsa_keys.SLOW)).decode(),
    }


def _slow_key_in_chain() -> dict[str, str]:
    usual, slow = secret("a"), _slow_key()
    chain = b"".join(base64.b64decode(each) for each in (slow["tls.crt"], slow["tls.key"], usual["tls.crt"]))
    return {**usual, "tls.crt": base64.b64encode(chain).decode()}


@pytest.mark.parametrize(
    "make",
    [
        lambda: {},
        lambda: {**secret("a"), "tls.key": "-"},
        lambda: {**secret("a"), "tls.crt": base64.b64encode(b"nothing").decode()},
        lambda: {**secret("a"), "tls.key": secret("b")["tls.key"]},
        lambda: {**secret("a"), "tls.crt": base64.b64encode(base64.b64decode(secret("a")["tls.crt"]) * 20).decode()},
        _large_key,
        _encrypted_key,
        _slow_key,
        _slow_key_in_chain,
    ],
    ids=[
        "empty",
        "no base64",
        "no certificate",
        "another key",
        "a long chain",
        "a large key",
        "an encrypted key",
        "a slow key",
        "a slow key in the chain",
    ],
)
def test_a_secret_that_cannot_be_served_is_an_error(make: object) -> None:
    with pytest.raises(CertificateError):
        context_of(make())  # type: ignore[operator]
