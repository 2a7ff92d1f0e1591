"""Fair queueing of TLS handshakes: a client's handshake is processed when it is its address's turn.

The first bytes are read with the turn in which the handshake was begun. A client may hold back what it has to send after that,
its certificate for one, which takes a millisecond to verify: hundreds that send it at the same moment would have it verified in
one round of the event loop. So each later piece waits for a turn of its own, and the connection is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any

from kube.serving.turns import Turns
from kube.tls_records import Receiving, Records

log = logging.getLogger(__name__)


async def shake(protocol: Receiving, accepted: socket.socket, tls: ssl.SSLContext, turns: Turns, owner: str) -> None:
    """See a connection through its handshake and give it to `protocol`; raises OSError where it fails."""
    records = Records(protocol, tls, server_side=True)
    done = records.done
    assert done is not None, "not connected yet"
    paced = _Paced(records, turns, owner)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: paced, accepted)
    try:
        await done
    except BaseException:
        transport.abort()
        raise
    finally:
        paced.stop()
    if not transport.is_closing():
        transport.set_protocol(records)


class _Paced(asyncio.BufferedProtocol):
    """Stands between a transport and its TLS until the handshake has succeeded or failed."""

    def __init__(self, inner: Records, turns: Turns, owner: str) -> None:
        self._inner, self._turns, self._owner = inner, turns, owner
        self._transport: Any = None
        self._begun = False
        self._turn: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop()
        self._inner.connection_lost(exc)
        self._inner = self._transport = None  # type: ignore[assignment]  # see Records

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes: at once where the handshake was begun with these bytes, or is done."""
        if not self._begun or (self._inner.done is not None and self._inner.done.done()):
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
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def stop(self) -> None:
        """Wait for no turn any more."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
