"""The handshakes of HTTPS clients are computed in threads."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from control.admission.webhooks.caller import Caller, CallFailed
from control.auth.oidc import Issuer, IssuerAway, KeySet
from control.scheduler.configuration import ExtenderConfig
from control.scheduler.extender import Extender, ExtenderError
from kube.clock import SYSTEM
from kube.http_connector import owner
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from tests.support import hostile_certificates
from tests.support.handshakes import Slow, https
from tests.support.lookup import Objects

Files = tuple[Path, Path, bytes]
"""Certificates that a server shows, their key, and the PEM of their authority."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return hostile_certificates.large_chain(tmp_path_factory.mktemp("large"))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


async def call_webhook(port: int, root: bytes, seconds: float = 20) -> None:
    caller = Caller(Objects())
    client = {"url": f"https://127.0.0.1:{port}/x", "caBundle": base64.b64encode(root).decode()}
    try:
        assert await caller.call(client, {}, seconds) == b"ok"
    finally:
        await caller.close()


async def fetch_keys(port: int, root: bytes) -> None:
    issuer = Issuer(f"https://127.0.0.1:{port}", (), cast(Any, None), authority=root.decode())
    with pytest.raises(IssuerAway, match="Expecting value"):  # the answer is no JSON
        await KeySet(issuer, SYSTEM).find("key")


async def ask_api_server(port: int, root: bytes) -> None:
    transport = HttpsTransport(Access(f"https://127.0.0.1:{port}", root))
    try:
        assert (await transport.request("GET", "/x")).body == b"ok"
    finally:
        await transport.close()


async def ask_extender(port: int, root: bytes) -> None:
    extender = Extender(ExtenderConfig(f"https://127.0.0.1:{port}", insecure=True))
    try:
        with pytest.raises(ExtenderError, match="JSON is malformed"):
            await extender._post("bind", {})
    finally:
        await extender.close()


Ask = Callable[[int, bytes], Awaitable[None]]
CLIENTS = [call_webhook, fetch_keys, ask_api_server, ask_extender]


@pytest.mark.parametrize("ask", CLIENTS)
async def test_the_handshake_of_a_client_is_computed_in_a_thread(ask: Ask, slow: Slow, large: Files) -> None:
    async with https(*large[:2]) as port, asyncio.timeout(20):
        await ask(port, large[2])
    assert any(name.startswith("tls-client") for name in slow.threads)


async def test_the_event_loop_verifies_no_chain_of_large_keys(large: Files) -> None:
    async with https(*large[:2]) as port:
        await call_webhook(port, large[2])
        whole, loop = time.process_time(), time.thread_time()
        await asyncio.gather(*(call_webhook(port, large[2]) for _ in range(10)))
        whole, loop = time.process_time() - whole, time.thread_time() - loop
        assert loop < whole / 2


async def test_an_extender_without_files_checks_the_servers_certificates_before_they_are_decoded(
    tmp_path: Path,
) -> None:
    async with https(*hostile_certificates.chain(tmp_path, 5)) as port:
        start = time.process_time()
        extender = Extender(ExtenderConfig(f"https://127.0.0.1:{port}"))
        with pytest.raises(ExtenderError):
            await extender._post("bind", {})
        await extender.close()
        assert time.process_time() - start < 0.5


async def test_a_server_of_another_authority_is_refused(tmp_path: Path, large: Files) -> None:
    async with https(*hostile_certificates.chain(tmp_path, 0)) as port:
        with pytest.raises(CallFailed, match="certificate verify failed"):
            await call_webhook(port, large[2])


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_ends_the_handshake_fails_the_call(answer: bytes, large: Files) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        with pytest.raises(CallFailed, match="Cannot connect to host"):
            await call_webhook(server.sockets[0].getsockname()[1], large[2])


async def test_a_handshake_counts_for_a_calls_timeout(large: Files) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        with pytest.raises(CallFailed, match="context deadline exceeded"):
            await call_webhook(server.sockets[0].getsockname()[1], large[2], 0.2)


def test_handshakes_with_services_are_those_of_their_namespace() -> None:
    hosts = ("a.ns.svc", "b.ns.svc", "example.com", "10.0.0.1", "a.b.c.svc")
    assert [owner(host) for host in hosts] == ["ns", "ns", "example.com", "10.0.0.1", "a.b.c.svc"]
