"""DNS server sockets: UDP read in batches when the loop reports readiness, TCP as streams.

The addresses are local ones of the node (on loopback): pods and the node itself reach them without translation, and
every node answers its own pods. They are bound one by one, never the wildcard: port 53 of the node belongs to others.
UDP sockets have no SO_REUSEADDR: with it another account's socket on the same address would get all queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Sequence
from typing import cast

from kube.serving.acceptor import Acceptor
from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable, Stage
from kube.serving.watched import Watched
from netproxy.dns import small_reads
from netproxy.dns.responder import Pending, Responder
from netproxy.dns.small_reads import SmallReads
from netproxy.dns.waiting_queries import WaitingQueries

log = logging.getLogger(__name__)

BATCH = 64
BATCH_SECONDS = 0.005
"""Seconds of answering before other tasks of the loop run: answers of large Services take milliseconds each."""
TCP_IDLE = 10.0
TCP_LIMITS = ServingLimits(unauthenticated=2048, unauthenticated_per_peer=512, head_timeout=TCP_IDLE)
"""Of TCP connections; each pod has an address of its own."""
TCP_MESSAGE = 4096
"""Bytes of a message over TCP, as over UDP: a question needs 300, with options and a signature 1000. A longer one closes the
connection, so that unfinished messages of many clients take little memory."""
RETRY = 5.0


class DNSServer:
    """Serves a responder on addresses of the node."""

    def __init__(
        self, responder: Responder, addresses: Sequence[str], port: int = 53, tcp: ServingLimits = TCP_LIMITS
    ) -> None:
        self._responder, self._addresses, self._port, self._limits = responder, addresses, port, tcp
        self._waiting = WaitingQueries()
        self._sockets: list[socket.socket] = []
        self._acceptors: list[Acceptor] = []
        self.serving = False
        """True if every address is bound."""
        self.table = ConnectionTable(tcp)
        self._read_buffer = memoryview(bytearray(TCP_MESSAGE))

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
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            udp.bind((address, self._port))
            self._port = udp.getsockname()[1]
            tcp = socket.create_server((address, self._port), family=family)
            acceptor = Acceptor(tcp, self._tcp_protocol, small_reads.end, self._limits, self.table)
            self._acceptors.append(acceptor)
            acceptor.start()
            loop.add_reader(udp, self._readable, udp)
        self.serving = True

    async def run(self) -> None:
        """Serve until cancelled. While an address cannot be bound (another server has the port) this is retried."""
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
        self.serving = False
        loop = asyncio.get_running_loop()
        for acceptor in self._acceptors:
            acceptor.close()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._waiting.close()
        self._sockets, self._acceptors = [], []

    def _readable(self, udp: socket.socket) -> None:
        until = time.monotonic() + BATCH_SECONDS
        for _ in range(BATCH):
            try:
                data, client = udp.recvfrom(4096)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # A client's closed port comes back as an error on our next read: no reason to stop.
                log.debug("DNS socket: %s", error)
                continue
            answer = self._responder.begin(data)
            if isinstance(answer, Pending):
                self._waiting.start(client[0], self._forward(udp, answer, client))
            elif answer:
                self._send(udp, answer, client)
            if time.monotonic() >= until:
                return  # the loop calls again while messages wait

    async def _forward(self, udp: socket.socket, pending: Pending, client: object) -> None:
        answer = await self._responder.finish(pending)
        if answer:
            self._send(udp, answer, client)

    @staticmethod
    def _send(udp: socket.socket, answer: bytes, client: object) -> None:
        # A full send buffer or a client that is gone loses an answer, which DNS over UDP may.
        with contextlib.suppress(OSError):
            udp.sendto(answer, client)  # type: ignore[call-overload]

    def _tcp_protocol(self, connection: Connection) -> asyncio.Protocol:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve_tcp(reader, writer, connection)

        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(TCP_MESSAGE, loop)
        watched = Watched(asyncio.StreamReaderProtocol(reader, serve, loop), connection, self.table)
        return cast(asyncio.Protocol, SmallReads(watched, self._read_buffer))

    async def _serve_tcp(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        who = writer.get_extra_info("peername", ("",))[0]
        try:
            while True:
                async with asyncio.timeout(self._limits.head_timeout):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    if length > TCP_MESSAGE:
                        return
                    data = await reader.readexactly(length)
                connection.stage = Stage.REQUEST
                await self.table.writes.wait(connection.who)
                answer = self._responder.begin(data, tcp=True)
                if isinstance(answer, Pending):
                    # The question of a client that has gone still waits for the resolvers.
                    task = self._waiting.start(who, self._responder.finish(answer))
                    answer = await _result(task) if task is not None else b""
                connection.stage = Stage.IDLE
                if not answer or writer.transport.is_closing():
                    return
                writer.write(struct.pack("!H", len(answer)) + answer)
                async with asyncio.timeout(self._limits.head_timeout):
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            return
        finally:
            writer.close()


async def _result(task: asyncio.Task[bytes]) -> bytes:
    """Return a task's result, b"" if it was cancelled; cancel it if the caller is cancelled."""
    try:
        await asyncio.wait((task,))
    finally:
        task.cancel()
    return b"" if task.cancelled() else task.result()
