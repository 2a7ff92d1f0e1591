"""TLS handshakes of clients with servers that users control (pods, Services, webhooks, nodes), in threads.

A step takes OpenSSL a millisecond, and several with large keys, which are the server's choice. One step of an owner, a
namespace or a node, is computed at a time: servers of one namespace take one thread at most.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

from kube import tls_buffers
from kube.serving.fair_queue import Slots
from kube.serving.handshakes import HandshakeProtocol, Stepwise, in_thread
from kube.tls_records import Receiving, Records

THREADS = max(2, (os.cpu_count() or 1) // 2)
_executor = ThreadPoolExecutor(THREADS, thread_name_prefix="tls-client")


class ClientHandshake(HandshakeProtocol):
    """Protocol of a transport whose handshake is computed in threads; `finish` replaces it."""

    def __init__(self, protocol: Receiving, tls: ssl.SSLContext, hostname: str, owner: str) -> None:
        """`protocol` is connected when the handshake has succeeded."""
        stepwise = Stepwise(tls)
        self.records = Records(protocol, stepwise, server_side=False, server_hostname=hostname, stepwise=True)
        assert self.records.done is not None, "not connected yet"
        self.done = self.records.done
        super().__init__(self.records, stepwise, lambda step: compute(step, owner), owner)

    async def finish(self, transport: asyncio.Transport) -> None:
        """Wait for the handshake; raises OSError if it fails."""
        try:
            await self.done
        except BaseException:
            transport.abort()
            raise
        finally:
            self.stop()
        if not transport.is_closing():
            transport.set_protocol(self.records)


class _Streams(asyncio.StreamReaderProtocol):
    """The protocol below a StreamReader, which counts calls that bring data."""

    received = 0
    transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.received += 1
        super().data_received(data)


async def open_connection(
    host: str, port: int, tls: ssl.SSLContext, owner: str, *, server_hostname: str = "", limit: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as asyncio's function of the name does, and compute the handshake in threads for an owner."""
    loop = asyncio.get_running_loop()
    tls_buffers.bound()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    streams = _Streams(reader, loop=loop)
    transport, shake = await loop.create_connection(
        lambda: ClientHandshake(streams, tls, server_hostname or host, owner), host, port
    )
    await shake.finish(transport)
    return reader, asyncio.StreamWriter(streams.transport, streams, reader, loop)


# -- threads ------------------------------------------------------------------------------------------------------
class _Steps:
    """The steps of one event loop."""

    def __init__(self) -> None:
        self.all = Slots(THREADS)
        self._owners: dict[str, tuple[Slots, int]] = {}

    async def compute(self, step: Callable[[], None], owner: str) -> None:
        """Compute a step when no other of the owner is computed and a thread is free."""
        mine, users = self._owners.get(owner, (Slots(1), 0))
        self._owners[owner] = mine, users + 1
        try:
            await mine.acquire(owner)
        except BaseException:
            self._leave(owner)
            raise

        def ended() -> None:
            mine.release()
            self._leave(owner)

        try:
            await self.all.acquire(owner)
        except BaseException:
            ended()
            raise

        def returned() -> None:
            self.all.release()
            ended()

        await in_thread(_executor.submit, step, returned)

    def _leave(self, owner: str) -> None:
        mine, users = self._owners[owner]
        if users > 1:
            self._owners[owner] = mine, users - 1
        else:
            del self._owners[owner]


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Steps] = WeakKeyDictionary()


async def compute(step: Callable[[], None], owner: str) -> None:
    """Call a function in a thread, for an owner as the steps of its handshakes."""
    await _loops.setdefault(asyncio.get_running_loop(), _Steps()).compute(step, owner)
