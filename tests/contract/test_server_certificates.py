"""Certificates by which clients accept an API server: a node's are refused though the same authority signs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from kube import bootstrap_tokens, certificates, kubeconfig, pki
from kube import servers as known
from kube.api import core_v1, meta_v1
from kube.bootstrap_tokens import Token
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.servers import Servers
from kube.transport import HttpsTransport
from wherry import discovery
from wherry.errors import WherryError

TOKEN = "secret-token"
NODE = ("system:node:evil", ("system:nodes",))
API_SERVER = ("kube-apiserver", ())
Subject = tuple[str, tuple[str, ...]]


@dataclass
class Served:
    """An HTTPS server on loopback, the requests that it has received, and the names that its clients asked for by TLS."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    asked_names: list[str | None] = field(default_factory=list)
    document: bytes = b"{}"
    redirect: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.redirect:
            raise web.HTTPFound(self.redirect)
        return web.Response(body=self.document, content_type="application/json")


@pytest.fixture
def authority() -> pki.KeyPair:
    return pki.new_ca("kubernetes", SYSTEM.now())


@contextlib.asynccontextmanager
async def served(
    directory: Path, authority: pki.KeyPair, subject: Subject, sans: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[Served]:
    made, (name, groups) = Served(), subject
    pair = pki.issue(authority, name, organizations=groups, usages=(pki.SERVER,), sans=sans, now=SYSTEM.now())
    file = f"server-{pair.certificate.serial_number}"
    pair.save(directory, file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{file}.crt", directory / f"{file}.key")
    context.sni_callback = lambda _object, asked, _context: made.asked_names.append(asked)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connected(access: Access, servers: Servers | None = None) -> AsyncIterator[HttpsTransport]:
    transport = HttpsTransport(access, servers=servers)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.mark.parametrize("subject", [NODE, ("system:node:evil", ()), ("evil", ("others", "system:nodes"))])
async def test_a_node_that_answers_at_an_api_servers_address_gets_no_request_and_no_token(
    tmp_path: Path, authority: pki.KeyPair, subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, authority, subject) as evil:
        with caplog.at_level(logging.WARNING):
            async with connected(Access(server=evil.url, ca=authority.cert_pem, token=TOKEN)) as transport:
                for _ in range(3):
                    with pytest.raises(StatusError, match=f"{evil.url}: its certificate is a node's .*{subject[0]}"):
                        await transport.request("GET", "/api/v1/pods")
                with pytest.raises(StatusError, match="its certificate is a node's"):
                    async with transport.stream("/api/v1/pods", query={"watch": "true"}):
                        pass
        assert evil.paths == []
    logged = [record for record in caplog.records if "certificate is a node's" in record.getMessage()]
    assert len(logged) == 1 and evil.url in logged[0].getMessage()


async def test_an_api_server_of_the_same_authority_is_used(tmp_path: Path, authority: pki.KeyPair) -> None:
    async with served(tmp_path, authority, API_SERVER) as good:
        async with connected(Access(server=good.url, ca=authority.cert_pem, token=TOKEN)) as transport:
            assert (await transport.request("GET", "/api/v1/pods")).status == 200
        assert good.tokens == {f"Bearer {TOKEN}"}


async def test_a_client_does_not_return_to_its_preferred_address_when_a_node_has_it(
    tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(known, "RETURN_SECONDS", (0.0, 0.0))
    async with served(tmp_path, authority, NODE) as evil, served(tmp_path, authority, API_SERVER) as good:
        servers = Servers(evil.url)
        servers.learn([good.url])
        servers.current = good.url
        async with connected(Access(server=evil.url, ca=authority.cert_pem), servers) as transport, asyncio.timeout(30):
            while len(evil.asked_names) < 3:  # it is checked again and again
                assert (await transport.request("GET", "/api/v1/pods")).status == 200
                await asyncio.sleep(0.01)
            assert transport.server == good.url
        assert evil.paths == []


async def test_a_node_that_the_endpoint_slice_names_is_not_used(tmp_path: Path, authority: pki.KeyPair) -> None:
    async with served(tmp_path, authority, NODE) as evil:
        away = "https://127.0.0.1:1"
        servers = Servers(away)
        servers.learn([evil.url])
        async with connected(Access(server=away, ca=authority.cert_pem, token=TOKEN), servers) as transport:
            with pytest.raises(StatusError, match=f"cannot reach the API server at {away}"):
                await transport.request("GET", "/api/v1/pods")
        assert evil.asked_names and evil.paths == []


async def test_a_joining_machine_does_not_give_its_token_to_a_node(tmp_path: Path, authority: pki.KeyPair) -> None:
    token = Token("abcdef", "0123456789abcdef")
    pin = pki.ca_hash(authority.certificate)
    async with served(tmp_path, authority, NODE) as evil:
        # The document is public, and the node passes the real one on.
        document = kubeconfig.render_cluster(Access(server=evil.url, ca=authority.cert_pem))
        data = {"kubeconfig": document, "jws-kubeconfig-abcdef": bootstrap_tokens.sign(document, token)}
        info = core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="cluster-info"), data=data)
        evil.document = msgspec.json.encode(info)
        with pytest.raises(WherryError, match=r"certificate is a node's .*join by the address of an API server"):
            await discovery.discover(evil.url, token, pin)
        assert evil.paths == [discovery.PATH]
        assert evil.tokens == {""}


async def test_the_bootstrap_token_of_a_kubeconfig_is_not_given_to_a_node(
    tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, authority, NODE) as evil:
        file, target = tmp_path / "bootstrap.kubeconfig", tmp_path / "agent.kubeconfig"
        kubeconfig.write(file, kubeconfig.render(Access(server=evil.url, ca=authority.cert_pem, token=TOKEN)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await certificates.bootstrap(file, target, tmp_path / "pki", "victim", clock=SYSTEM)
        assert evil.asked_names and evil.paths == [] and not target.exists()


# -- names of servers -----------------------------------------------------------------------------------------------
async def test_servers_are_verified_by_the_name_that_the_kubeconfig_gives(
    tmp_path: Path, authority: pki.KeyPair
) -> None:
    name = "kubernetes.default.svc"
    async with (
        served(tmp_path, authority, API_SERVER, (name,)) as named,
        served(tmp_path, authority, API_SERVER, ("127.0.0.1",)) as other,
    ):
        file = tmp_path / "agent.kubeconfig"
        access = Access(server=other.url, ca=authority.cert_pem, token=TOKEN, server_name=name)
        kubeconfig.write(file, kubeconfig.render(access))
        loaded = kubeconfig.load(file)
        async with connected(loaded) as transport:
            with pytest.raises(StatusError, match=f"certificate is not valid for .*{name}"):
                await transport.request("GET", "/api")
        servers = Servers(loaded.server)
        servers.learn([named.url])
        async with connected(loaded, servers) as transport:
            assert (await transport.request("GET", "/api")).status == 200  # the learned server has the name
        assert other.paths == [] and named.paths == ["/readyz", "/api"]
        assert set(named.asked_names) == set(other.asked_names) == {name}


async def test_the_kubeconfig_that_bootstrapping_writes_keeps_the_name_of_the_server(
    tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def signed(*_: object, **options: object) -> bytes:
        return authority.cert_pem

    monkeypatch.setattr(certificates, "request", signed)
    file, target = tmp_path / "bootstrap.kubeconfig", tmp_path / "agent.kubeconfig"
    access = Access(server="https://127.0.0.1:1", ca=authority.cert_pem, token=TOKEN, server_name="api.example")
    kubeconfig.write(file, kubeconfig.render(access))
    await certificates.bootstrap(file, target, tmp_path / "pki", "n1", clock=SYSTEM)
    assert kubeconfig.load(target).server_name == "api.example"


async def test_a_server_that_is_not_verified_is_asked_by_the_name_that_the_kubeconfig_gives(
    tmp_path: Path, authority: pki.KeyPair
) -> None:
    async with served(tmp_path, authority, API_SERVER) as server:
        async with connected(Access(server=server.url, insecure=True, server_name="api.example")) as transport:
            assert (await transport.request("GET", "/api")).status == 200
        assert server.asked_names == ["api.example"]


async def test_a_redirect_is_no_answer_to_the_question_whether_a_server_is_ready(
    tmp_path: Path, authority: pki.KeyPair
) -> None:
    async with served(tmp_path, authority, API_SERVER) as elsewhere, served(tmp_path, authority, API_SERVER) as server:
        server.redirect = f"{elsewhere.url}/metadata"
        away = "https://127.0.0.1:1"
        servers = Servers(away)
        servers.learn([server.url])
        async with connected(Access(server=away, ca=authority.cert_pem), servers) as transport:
            with pytest.raises(StatusError, match="cannot reach the API server"):
                await transport.request("GET", "/api")
        assert server.paths == ["/readyz"] and elsewhere.paths == []
