"""TLS handshakes in turns: what a client sends within its handshake is read when it is its address's turn.

The first bytes are read with the turn in which the handshake was begun. A client may hold back what it has to send after that,
its certificate for one, which takes a millisecond to verify: hundreds that send it at the same moment would have it verified in
one round of the event loop. So each later piece waits for a turn of its own, and the connection is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from asyncio import sslproto
from typing import Any

from kube.serving.turns import Turns

log = logging.getLogger(__name__)


async def shake(
    protocol: asyncio.Protocol, accepted: socket.socket, tls: ssl.SSLContext, turns: Turns, owner: str
) -> None:
    """See a connection through its handshake and give it to `protocol`; raises OSError where it fails."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    inner = _kind(loop)(loop, protocol, tls, done, server_side=True)
    paced = _Paced(inner, done, turns, owner)
    transport, _ = await loop.connect_accepted_socket(lambda: paced, accepted)
    try:
        await done
    except BaseException:
        transport.abort()
        raise
    finally:
        paced.stop()
    if not transport.is_closing():
        transport.set_protocol(inner)


def _kind(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the loop's own class for the TLS of a connection: uvloop's is faster than asyncio's, and works on uvloop alone."""
    if type(loop).__module__.startswith("uvloop"):
        return sys.modules["uvloop.loop"].SSLProtocol
    return sslproto.SSLProtocol


class _Paced(asyncio.BufferedProtocol):
    """Stands between a transport and its TLS until `done`, when the handshake has succeeded or failed."""

    def __init__(self, inner: Any, done: asyncio.Future[None], turns: Turns, owner: str) -> None:
        self._inner, self._done, self._turns, self._owner = inner, done, turns, owner
        self._transport: Any = None
        self._begun = False
        self._turn: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop()
        self._inner.connection_lost(exc)
        # An error's traceback leads here, and here the future that has the error: a circle with all buffers.
        self._inner = self._transport = self._done = None  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Take in what was read: at once where the handshake was begun with these bytes, or is done."""
        if self._done.done() or not self._begun:
            self._begun = True
            self._inner.buffer_updated(nbytes)
            return
        self._transport.pause_reading()
        self._turn = asyncio.get_running_loop().create_task(self._later(nbytes), name="TLS handshake")

    async def _later(self, nbytes: int) -> None:
        await self._turns.take(self._owner)
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        try:
            self._inner.buffer_updated(nbytes)
        except Exception:
            log.exception("connection from %s", self._owner)
            self._transport.abort()

    def eof_received(self) -> bool | None:
        ended: bool | None = self._inner.eof_received()
        return ended

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def stop(self) -> None:
        """Wait for no turn any more."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
