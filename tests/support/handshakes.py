"""HTTPS servers and slow handshakes for tests of clients."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.serving import handshakes


@contextlib.asynccontextmanager
async def https(*files: Path) -> AsyncIterator[int]:
    """Serve HTTPS with these certificates; give the port."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Slow:
    """Makes the steps of handshakes that a thread computes for one hostname wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.waiting = 0
        self.threads = set[str]()
        real = handshakes._Handshake.step

        def step(tls: handshakes._Handshake) -> None:
            self.threads.add(threading.current_thread().name)
            if tls.server_hostname == "slow" and threading.current_thread() is not threading.main_thread():
                self.waiting += 1
                self.go_on.wait(30)
            real(tls)

        monkeypatch.setattr(handshakes._Handshake, "step", step)
