"""A WebSocket: the client's connection and the backend's are joined until one ends, or nothing has passed for long."""

from __future__ import annotations

import asyncio

from netproxy.gateway.backend_connection import BackendConnection
from netproxy.gateway.errors import BackendError
from netproxy.gateway.header_changes import Header
from netproxy.gateway.protocol import GatewayProtocol

GRACE = 5.0
"""Seconds for what was written to a backend before the connection is closed."""


async def splice(protocol: GatewayProtocol, backend: BackendConnection, headers: list[Header], silence: float) -> None:
    """Send a 101 with these headers and pass bytes both ways; returns when the connections have ended."""
    if protocol.transport.is_closing():
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    last = loop.time()

    def from_client(data: bytes) -> None:
        nonlocal last
        last = loop.time()
        backend.transport.write(data)

    def from_backend(data: bytes) -> None:
        nonlocal last
        last = loop.time()
        protocol.transport.write(data)
        if protocol.flow.write_paused:
            backend.pause_reading()

    parts = [b"HTTP/1.1 101 Switching Protocols\r\n"]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n")
    protocol.transport.write(b"".join(parts))
    backend.on_pause, backend.on_resume = protocol.flow.pause_reading, protocol.flow.resume_reading
    backend.on_end, protocol.on_writable = ended.set, backend.resume_reading
    protocol.takeover(from_client, ended.set)
    if early := backend.take_over(from_backend):
        from_backend(early)
    backend.resume_reading()
    try:
        while not ended.is_set() and backend.error is None and (left := last + silence - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await ended.wait()
            except TimeoutError:
                continue
    finally:
        protocol.on_writable = backend.on_pause = backend.on_resume = backend.on_end = None
        # What was written last has to leave before the connections close.
        backend.transport.close()
        loop.call_later(GRACE, backend.fail, BackendError("closed"))
        protocol.close()
