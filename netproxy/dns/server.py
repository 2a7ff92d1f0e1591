"""The sockets of cluster DNS: UDP read in batches straight off the loop's readiness, TCP as streams.

The addresses are local ones of the node (on loopback): pods and the node itself reach them without translation, and
every node answers its own pods. They are bound one by one, never the wildcard: port 53 of the node belongs to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Sequence

from netproxy.dns.responder import Responder

log = logging.getLogger(__name__)

BATCH = 64
MAX_WAITING = 1000
TCP_IDLE = 10.0
MAX_TCP = 200
RETRY = 5.0


class DNSServer:
    """Serves a responder on addresses of the node."""

    def __init__(self, responder: Responder, addresses: Sequence[str], port: int = 53) -> None:
        self._responder, self._addresses, self._port = responder, addresses, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections = 0

    @property
    def port(self) -> int:
        """The port served, once started (for a server started on port 0)."""
        return self._port

    async def start(self) -> None:
        """Bind every address; OSError where one cannot be."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            udp = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._sockets.append(udp)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            udp.bind((address, self._port))
            self._port = udp.getsockname()[1]
            self._servers.append(await asyncio.start_server(self._serve_tcp, address, self._port))
            loop.add_reader(udp, self._readable, udp)

    async def run(self) -> None:
        """Serve until cancelled. While an address cannot be bound (another server has the port) this is tried again."""
        try:
            while True:
                try:
                    await self.start()
                    break
                except OSError as error:
                    log.error("cluster DNS cannot serve %s yet: %s", ", ".join(self._addresses), error)
                    self.close()
                    await asyncio.sleep(RETRY)
            await asyncio.get_running_loop().create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving at once."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        self._sockets, self._servers = [], []

    def _readable(self, udp: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                data, client = udp.recvfrom(4096)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # A client's closed port comes back as an error on our next read: no reason to stop.
                log.debug("DNS socket: %s", error)
                continue
            answer = self._responder.quick(data)
            if answer is None:
                self._later(udp, data, client)
            elif answer:
                self._send(udp, answer, client)

    def _later(self, udp: socket.socket, data: bytes, client: object) -> None:
        if len(self._tasks) >= MAX_WAITING:
            return  # shed load: the client asks again, and by then the resolvers may have answered
        task = asyncio.get_running_loop().create_task(self._forward(udp, data, client), name="dns forward")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, udp: socket.socket, data: bytes, client: object) -> None:
        answer = await self._responder.slow(data)
        if answer:
            self._send(udp, answer, client)

    @staticmethod
    def _send(udp: socket.socket, answer: bytes, client: object) -> None:
        # A full send buffer or a client that is gone loses an answer, which DNS over UDP may.
        with contextlib.suppress(OSError):
            udp.sendto(answer, client)  # type: ignore[call-overload]

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_TCP:
            writer.close()
            return
        self._connections += 1
        try:
            while True:
                async with asyncio.timeout(TCP_IDLE):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    data = await reader.readexactly(length)
                answer = await self._responder.slow(data, tcp=True)
                if not answer:
                    return
                writer.write(struct.pack("!H", len(answer)) + answer)
                async with asyncio.timeout(TCP_IDLE):
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            return
        finally:
            self._connections -= 1
            writer.close()
