"""Peers whose certificates take OpenSSL long to decode hold neither the event loop nor the threads of handshakes."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any, cast

import pytest

from agent.probes.handlers import Handlers
from agent.probes.result import Target, Verdict
from agent.server import listeners
from agent.server.sessions import answer
from agent.threads import Owner
from control.server.subresources import backends
from kube import client_handshakes, errors
from kube.api import core_v1
from tests.support import hostile_certificates
from tests.support.handshakes import Slow, https

CERTIFICATES = 5
"""They cost one second, where they are decoded."""


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return hostile_certificates.chain(tmp_path_factory.mktemp("evil"), CERTIFICATES)


@pytest.fixture
def usual(tmp_path: Path) -> tuple[Path, Path]:
    return hostile_certificates.chain(tmp_path, 0)


async def probe(port: int) -> Any:
    action = core_v1.HTTPGetAction(port=port, path="/", scheme="HTTPS")
    target = Target(core_v1.Container(name="c"), "id", "127.0.0.1", Owner("uid", "ns"))
    handlers = Handlers(cast(Any, None))
    return await handlers.run(core_v1.Probe(http_get=action, timeout_seconds=20), target)


async def test_a_probe_does_not_read_a_pods_slow_certificates(evil: tuple[Path, Path]) -> None:
    async with https(*evil) as port:
        start = time.process_time()
        assert (await probe(port)).verdict is Verdict.FAILURE
        assert time.process_time() - start < 0.5


async def test_the_proxy_to_pods_does_not_read_slow_certificates(
    evil: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "check_address", lambda address: address)  # it refuses loopback
    async with https(*evil) as port:
        start = time.process_time()
        with pytest.raises(errors.StatusError, match="error trying to reach service"):
            await backends._dial("https", "127.0.0.1", port, "ns")
        assert time.process_time() - start < 0.5


async def test_clients_with_slow_certificates_delay_no_others(
    evil: tuple[Path, Path], usual: tuple[Path, Path]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 401, "Unauthorized")

    listener = listeners.Listener(
        address="127.0.0.1", port=0, cert_file=usual[0], key_file=usual[1], client_ca_file=usual[0]
    )
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(listeners.serve(app, listener, bound.set_result))
    port = await bound
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shown.check_hostname, shown.verify_mode = False, ssl.CERT_NONE
    shown.load_cert_chain(*evil)

    async def connect(tls: ssl.SSLContext) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return await reader.readline()
        finally:
            writer.transport.abort()

    try:
        start = time.process_time()
        attacks = [asyncio.create_task(connect(shown)) for _ in range(5)]
        assert b" 401 " in await connect(client)
        results = await asyncio.gather(*attacks, return_exceptions=True)
        assert [result for result in results if result and not isinstance(result, OSError)] == []
        assert time.process_time() - start < 1
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


# -- threads of clients' handshakes -------------------------------------------------------------------------------
@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


async def connected(port: int, owner: str, name: str = "fast") -> bytes:
    """Send a request on a connection; return the last line of the answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await client_handshakes.open_connection(
        "127.0.0.1", port, context, owner, server_hostname=name, limit=1000
    )
    try:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        return await reader.read(2)
    finally:
        writer.transport.abort()


async def test_slow_handshakes_of_one_owner_take_one_thread(slow: Slow, usual: tuple[Path, Path]) -> None:
    async with https(*usual) as port, asyncio.timeout(60):
        waiting = [asyncio.create_task(connected(port, "evil", "slow")) for _ in range(4)]
        while not slow.waiting:
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert await connected(port, "good") == b"ok"
        assert slow.waiting == 1
        assert any(name.startswith("tls-client") for name in slow.threads)
        slow.go_on.set()
        assert await asyncio.gather(*waiting) == [b"ok"] * 4
    assert client_handshakes._loops[asyncio.get_running_loop()]._owners == {}


async def test_a_handshake_that_is_not_waited_for_keeps_its_thread(slow: Slow, usual: tuple[Path, Path]) -> None:
    """Else the next one of the owner would take another thread."""
    async with https(*usual) as port, asyncio.timeout(60):
        for _ in range(3):
            waiting = asyncio.create_task(connected(port, "evil", "slow"))
            while not slow.waiting:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert slow.waiting == 1
        assert await connected(port, "good") == b"ok"
        slow.go_on.set()
        assert await connected(port, "evil") == b"ok"


async def test_a_probe_s_handshake_is_computed_in_a_thread(slow: Slow, usual: tuple[Path, Path]) -> None:
    async with https(*usual) as port:
        assert (await probe(port)).verdict is Verdict.SUCCESS
    assert any(name.startswith("tls-client") for name in slow.threads)


async def test_other_connections_with_the_same_settings_are_asyncio_s_own(usual: tuple[Path, Path]) -> None:
    async with https(*usual) as port, asyncio.timeout(20):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, ours = await client_handshakes.open_connection("127.0.0.1", port, context, "a", limit=1000)
        _, theirs = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for writer in (ours, theirs):
            writer.transport.abort()
        assert context.sslobject_class is ssl.SSLObject
