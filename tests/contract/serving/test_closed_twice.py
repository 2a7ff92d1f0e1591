"""A TLS connection of a client that is closed twice, as by the two users of an abandoned exchange: its peer still sends."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kube import client_handshakes, pki, tls_records


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of its clients."""
    now = datetime.now(UTC)
    authority = pki.new_ca("test", now)
    pki.issue(authority, "server", usages=(pki.SERVER,), sans=["127.0.0.1"], now=now).save(tmp_path, "server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


@pytest.mark.parametrize("records", [0, 1, 3, tls_records.WAITING + 50])
async def test_what_the_peer_sends_after_the_second_close_is_no_error(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], records: int
) -> None:
    failures, ended = list[dict[str, Any]](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            writer.write(b"x")
        for _ in range(records):
            writer.write(b"late")
            await asyncio.sleep(0)
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0])
    async with asyncio.timeout(20):
        port = server.sockets[0].getsockname()[1]
        reader, writer = await client_handshakes.open_connection("127.0.0.1", port, tls[1], "a", limit=1000)
        for _ in range(3):
            writer.write(b"x")
            assert await reader.read(1) == b"x"
        transport = writer.transport.get_extra_info("socket")
        writer.close()
        writer.close()
        await ended.wait()
        while transport.fileno() != -1:
            await asyncio.sleep(0.001)
    server.close()
    await server.wait_closed()
    assert failures == []
