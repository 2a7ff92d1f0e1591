"""Discovery of the cluster by a joining machine, and every form of wrong or forged discovery data."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from kube import bootstrap_tokens, kubeconfig, pki
from kube.bootstrap_tokens import Token
from kube.clock import SYSTEM
from kube.kubeconfig import Access
from tests.support import https
from tests.support.control import api_server
from tests.support.joinable_cluster import WRONG_PIN, JoinableCluster, joinable_cluster
from wherry import discovery, join
from wherry.errors import WherryError


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[JoinableCluster]:
    async with joinable_cluster(tmp_path) as made:
        yield made


async def test_the_cluster_is_found_with_token_and_hash(cluster: JoinableCluster) -> None:
    found = await discovery.discover(cluster.api.url, cluster.token, cluster.pin)
    assert (found.server, found.ca) == (cluster.api.url, cluster.ca)


async def test_each_invalid_credential_has_its_own_message(
    cluster: JoinableCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "SIGNATURE_SECONDS", 0.3)
    with pytest.raises(WherryError, match=f"has the hash {cluster.pin}, not the one given"):
        await discovery.discover(cluster.api.url, cluster.token, WRONG_PIN)
    with pytest.raises(WherryError, match="second half is wrong"):
        await discovery.discover(cluster.api.url, Token(cluster.token.id, "0" * 16), cluster.pin)
    with pytest.raises(WherryError, match="does not know the token zzzzzz, or it has expired"):
        await discovery.discover(cluster.api.url, Token("zzzzzz", "0" * 16), cluster.pin)


class Shifted:
    """The system's clock, wrong by some time."""

    steady = False

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        return SYSTEM.now() + self._shift

    def monotonic(self) -> float:
        return SYSTEM.monotonic()

    def boottime(self) -> float:
        return SYSTEM.boottime()

    async def sleep(self, seconds: float) -> None:
        await SYSTEM.sleep(seconds)

    async def sleep_deferrable(self, seconds: float) -> None:
        await self.sleep(seconds)


@pytest.mark.parametrize(("shift", "message"), [(timedelta(hours=-2), "behind"), (timedelta(days=3), "ahead of")])
async def test_a_clock_that_is_wrong_is_noticed_before_certificates_fail(
    cluster: JoinableCluster, shift: timedelta, message: str
) -> None:
    with pytest.raises(WherryError, match=f"this machine's clock is .* {message} the server's"):
        await discovery.discover(cluster.api.url, cluster.token, cluster.pin, clock=Shifted(shift))


async def test_a_server_name_that_is_missing_in_the_certificate_is_an_error(cluster: JoinableCluster) -> None:
    forward = await asyncio.start_server(
        lambda reader, writer: _splice(reader, writer, cluster.settings.api_port), "127.0.0.2", 0
    )
    port = forward.sockets[0].getsockname()[1]
    async with forward:
        with pytest.raises(WherryError, match=r"does not name 127\.0\.0\.2: .*`wherry up --name 127\.0\.0\.2`"):
            await discovery.discover(f"https://127.0.0.2:{port}", cluster.token, cluster.pin)


async def _splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))


async def test_a_server_that_does_not_answer_is_distinguished_from_one_that_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "CONNECT_SECONDS", 0.5)
    token = bootstrap_tokens.new()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(WherryError, match="check the address, and that the server runs"):
            await discovery.discover(f"https://127.0.0.1:{port}", token, WRONG_PIN)
        # A gateway that takes any connection and says nothing.
        silent.listen()
        with pytest.raises(WherryError, match=r"no API server answers .* within 0\.5 s"):
            await discovery.discover(f"https://127.0.0.1:{port}", token, WRONG_PIN)

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        with pytest.raises(WherryError, match="does not speak TLS"):
            await discovery.discover(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", token, WRONG_PIN)


async def test_a_server_of_no_cluster_is_an_error(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        with pytest.raises(WherryError, match="offers nothing to join"):
            await discovery.discover(api.url, bootstrap_tokens.new(), WRONG_PIN)


async def test_another_ca_is_not_trusted_though_its_holder_knows_the_token(
    cluster: JoinableCluster, tmp_path: Path
) -> None:
    """Somebody between who learned the token, and so can sign, but has not the CA's key."""
    impostor = pki.new_ca("kubernetes", SYSTEM.now())
    pair = pki.issue(impostor, "kube-apiserver", usages=(pki.SERVER,), sans=("127.0.0.1",), now=SYSTEM.now())
    pair.save(tmp_path, "impostor")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "impostor.crt", tmp_path / "impostor.key")
    document = kubeconfig.render_cluster(Access(server=cluster.api.url, ca=cluster.ca))
    data = {
        "kubeconfig": document,
        f"jws-kubeconfig-{cluster.token.id}": bootstrap_tokens.sign(document, cluster.token),
    }
    body = json.dumps({"metadata": {"name": "cluster-info"}, "data": data}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(WherryError, match="is not from the cluster's CA"):
            await discovery.discover(f"https://127.0.0.1:{port}", cluster.token, cluster.pin)


def test_the_address_of_a_node_is_the_one_towards_the_server() -> None:
    assert join.address_towards("https://127.0.0.1:6443") == "127.0.0.1"


async def test_the_document_of_a_server_that_is_not_verified_is_read_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ANSWER_LIMIT", 1000)
    https.authority(tmp_path, "server")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b" " * 1001, content_type="application/json")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with https.served(application, tmp_path, "server") as port:
        with pytest.raises(WherryError, match="is longer than 1000 bytes"):
            await discovery.discover(f"https://127.0.0.1:{port}", bootstrap_tokens.new(), WRONG_PIN)
