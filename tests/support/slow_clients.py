"""Clients that misbehave, on plain sockets and TLS: they say little, or late, or read nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl


class RawClient:
    """A connection that sends given bytes; every wait for the server has a limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None, data: bytes = b"") -> RawClient:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        client = cls(reader, writer)
        if data:
            await client.send(data)
        return client

    async def send(self, data: bytes) -> None:
        """Send as far as the server reads; a connection that it has closed is no error here."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except (OSError, RuntimeError):  # uvloop's word for a transport that is closed
            pass

    async def head(self) -> bytes:
        """Return an answer's head."""
        async with asyncio.timeout(20):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Return everything until the server closes the connection; it must do so within 20 seconds."""
        found = bytearray()
        async with asyncio.timeout(20):
            try:
                while data := await self.reader.read(65536):
                    found += data
            except OSError:
                pass  # closed without ceremony
        return bytes(found)

    @property
    def open(self) -> bool:
        """Return whether the server has left the connection open, as far as is known here."""
        return not self.reader.at_eof() and self.reader.exception() is None

    def close(self) -> None:
        self.writer.transport.abort()


def silent(port: int, *, receive_buffer: int = 0) -> socket.socket:
    """Return a TCP connection on which nothing is sent and nothing read."""
    made = socket.socket()
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(20)
    made.connect(("127.0.0.1", port))
    return made


def closed(made: socket.socket, seconds: float = 20) -> bool:
    """Wait for the server to close a connection that nothing was sent on; blocks."""
    made.settimeout(seconds)
    try:
        while made.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()
