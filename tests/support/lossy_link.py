"""A TCP link between a client and a server that can lose the server's answers, delay what the client sends, and break.

What the client sends arrives; what the server answers is thrown away once `lose_answers` was called. `cut` breaks the
connections, and until `heal` new ones are accepted and left alone. After `hold_requests` what clients send on the connections
there are is kept, also when those break, and arrives with `deliver`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 65536


class LossyLink:
    """One link; `port` is where clients connect on 127.0.0.1."""

    port: int

    def __init__(self, host: str, port: int) -> None:
        self._host, self._to = host, port
        self._losing = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()
        self._lost = asyncio.Event()
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._holding: set[asyncio.StreamWriter] = set()
        self._deliver = asyncio.Event()

    def hold_requests(self) -> None:
        """Keep what clients send from now on over the connections that there are."""
        self._holding = set(self._servers)
        self._deliver.clear()

    async def held(self) -> None:
        """Wait until something is kept."""
        while not self._held:
            await asyncio.sleep(0.01)

    async def deliver(self) -> None:
        """Let what was kept arrive."""
        self._holding.clear()
        for writer, data in self._held:
            writer.write(data)
        await asyncio.sleep(0.5)
        self._held.clear()
        self._deliver.set()

    def lose_answers(self) -> None:
        """Throw away whatever the server says from now on."""
        self._losing = True
        self._passing.clear()
        self._lost.clear()

    async def lost(self) -> None:
        """Wait until something was thrown away: the server has answered."""
        await self._lost.wait()

    def cut(self) -> None:
        """Break the connections there are."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Let everything pass again, over new connections."""
        self._losing = False
        self.cut()
        self._passing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._passing.wait()
            server_reader, server_writer = await asyncio.open_connection(self._host, self._to)
            self._servers.add(server_writer)
            try:
                await asyncio.gather(
                    self._carry(reader, server_writer, answers=False), self._carry(server_reader, writer, answers=True)
                )
            finally:
                if server_writer in self._holding:
                    await self._deliver.wait()
                self._servers.discard(server_writer)
                server_writer.transport.abort()
        except OSError:
            return
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(CHUNK):
            if answers and self._losing:
                self._lost.set()
                continue
            if writer in self._holding:
                self._held.append((writer, data))
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def lossy_link(port: int, host: str = "127.0.0.1") -> AsyncIterator[LossyLink]:
    """Open a link to a server; its connections end with the block."""
    link = LossyLink(host, port)
    server = await asyncio.start_server(link._connected, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        link.heal()
        link._deliver.set()
        server.close()
        link.cut()
