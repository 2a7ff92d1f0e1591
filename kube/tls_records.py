"""Limits on TLS records that bring no application data: key updates, session tickets, empty or padded records.

Any peer may send them without limit after the handshake, and one of 27 bytes costs 12 µs. The event loop's SSLProtocol reads
256 KB at once and decrypts all of it, 0.1 s, before the protocol above gets a byte. So `Records` is inserted between a
transport and its SSLProtocol, finds the records by their headers, which are in clear, passes on 32 at a time, and aborts the
connection after more consecutive records without application data (Go's crypto/tls: 16). A read of one whole record, as
requests are, costs one call more.

The type of a record is encrypted in TLS 1.3. So the protocol above counts the data that reaches it: `received` changes with
each call of `data_received` or `buffer_updated`. While it does not read, nothing is decrypted: records wait, at most
`WAITING` of them in the SSLProtocol, for they are decrypted all at once when it continues.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger(__name__)

MOST = 32
"""Records in a row without application data."""
MOST_CLOSING = 512
"""The same of a connection that is being closed: what it brings is thrown away, though its peer may be sending a body still."""
WAITING = 256
"""Records that wait in the SSLProtocol while the protocol above does not read. Its own limit is 256 KB, which those of 1.4 KB
that Go's clients send reach first."""
POLL = 0.02
"""Seconds between looks whether the protocol above reads again, while records are held back."""
_HEADER = 5
_TYPES = range(20, 25)
"""Content types of records (RFC 8446, section B.1, and heartbeats)."""
_LONGEST = (16 << 10) + 2048
"""Most bytes of a record after its header (RFC 5246)."""


def _ssl_protocol(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the loop's own class for the TLS of a connection: uvloop's is faster than asyncio's, and works on uvloop alone."""
    if type(loop).__module__.startswith("uvloop"):
        return sys.modules["uvloop.loop"].SSLProtocol
    return sslproto.SSLProtocol


class Receiving(Protocol):
    """Interface of the protocol above, besides the methods of a protocol."""

    received: int
    """Changes with each call that brings data."""


class TlsSettings(Protocol):
    """Factory of TLS objects: an `ssl.SSLContext`, or an object with the same method."""

    @property
    def wrap_bio(self) -> Callable[..., ssl.SSLObject]: ...


class Records(asyncio.BufferedProtocol):
    """One connection's TLS for a transport: its SSLProtocol, held to the limits."""

    def __init__(
        self,
        protocol: Receiving,
        tls: TlsSettings,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        stepwise: bool = False,
    ) -> None:
        """Set `done` when the handshake has succeeded or failed; `protocol` may be replaced by another that is `Receiving`.

        `stepwise`: the steps of the handshake are computed by the caller, who calls `go_on` after each.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] | None = done
        """The handshake; None when the connection is lost."""
        inner = _ssl_protocol(loop)(loop, protocol, tls, done, server_side=server_side, server_hostname=server_hostname)
        self.protocol = protocol
        self._inner, self._updated = inner, inner.buffer_updated
        self._view = inner.get_buffer(1)
        """All of the SSLProtocol's buffer; it has the same one, of the largest size, for as long as it lives."""
        self.get_buffer = inner.get_buffer  # type: ignore[method-assign]  # no call of ours for each read
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self._transport: Any = None
        self._above: Any = None
        self._seen: Any = None
        self._count = self._rest = 0
        self.complete = False
        """During the handshake: what was handed over last ended a record or can be none, so that there is a next step."""
        self._header = b""
        self._buffered = b""
        self._poll: asyncio.TimerHandle | None = None
        self._stepwise = stepwise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._poll is not None:
            self._poll.cancel()
        self._buffered = b""
        self._inner.connection_lost(exc)
        # An error's traceback leads here, and here the future that has the error: a circle with all buffers.
        for name in ("get_buffer", "pause_writing", "resume_writing", "eof_received"):
            self.__dict__.pop(name, None)
        self._inner = self._updated = self._view = self._transport = self._above = self.done = None

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over what was read."""
        view, above = self._view, self._above
        if (
            above is None
            or self._rest
            or self._header
            or self._count > MOST
            or view[3] << 8 | view[4] != nbytes - _HEADER
        ):
            self._inspect(nbytes)
            return
        self._updated(nbytes)
        protocol = _protocol_of(above)
        if protocol is not None and protocol.received != self._seen:
            self._seen = protocol.received
            self._count = 0
        else:
            self._count += 1
            self._check()

    def go_on(self) -> bool:
        """Continue after a step of the handshake; returns whether more was handed over that waits for the next one."""
        self._updated(0)
        self._check()
        buffered, self._buffered = self._buffered, b""
        self._view[: len(buffered)] = buffered
        self._inspect(len(buffered))
        return bool(buffered) and self.complete and self._shaking()

    def _shaking(self) -> bool:
        return self.done is not None and not self.done.done()

    def _inspect(self, nbytes: int) -> None:
        """Hand over a read that is not just one whole record, at most `MOST` records at a time."""
        if self._buffered:
            self._hold(bytes(self._view[:nbytes]))
            return
        start = 0
        while start < nbytes and not self._transport.is_closing():
            if self._waits():
                self._hold(bytes(self._view[start:nbytes]))
                return
            end, records = self._end(start, nbytes)
            if start:
                self._view[: end - start] = self._view[start:end]
            self._updated(end - start)
            self._count += records
            start = end
            self._check()
            if self._stepwise and self._shaking():
                # All that was handed over is decrypted when the handshake is done.
                self._buffered = bytes(self._view[start:nbytes])
                return

    def _end(self, start: int, nbytes: int) -> tuple[int, int]:
        """Return where the next piece ends, and how many records begin in it."""
        view, records = self._view, 0
        position = start + self._rest
        self.complete = 0 < self._rest <= nbytes - start
        while position < nbytes and records < MOST:
            kept = self._header
            needed = _HEADER - len(kept)
            if position + needed > nbytes:
                self._header += bytes(view[position:nbytes])
                self._rest = 0
                return nbytes, records
            header = kept + bytes(view[position : position + needed])
            self._header = b""
            position += needed + (header[3] << 8 | header[4])
            records += 1
            self.complete |= position <= nbytes or not _is_record(header)
        end = min(position, nbytes)
        self._rest = position - end
        return end, records

    def _check(self) -> None:
        """Abort the connection when too many records came in a row without application data."""
        above = self._above
        if above is None:
            if (done := self.done) is None or not done.done() or done.cancelled() or done.exception() is not None:
                return
            above = self._above = self._inner._get_app_transport()
            self._count = 0
        protocol = _protocol_of(above)
        if protocol is not None and protocol.received != self._seen:
            self._seen = protocol.received
            self._count = 0
        elif self._count > MOST and (above.is_closing() or above.is_reading()):
            if self._count > MOST_CLOSING or not above.is_closing():
                log.debug("connection from %s: too many records", self._transport.get_extra_info("peername"))
                self._transport.abort()

    def _waits(self) -> bool:
        """Return whether the protocol above does not read, and enough is waiting for it."""
        above = self._above
        return self._count > WAITING and above is not None and not above.is_closing() and not above.is_reading()

    def _hold(self, data: bytes) -> None:
        self._buffered += data
        self._transport.pause_reading()
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL, self._retry)

    def _retry(self) -> None:
        self._poll = None
        if self._transport.is_closing():
            return
        if self._waits():
            self._poll = asyncio.get_running_loop().call_later(POLL, self._retry)
            return
        buffered, self._buffered = self._buffered, b""
        self._transport.resume_reading()
        size = len(self._view)
        for start in range(0, len(buffered), size):
            part = buffered[start : start + size]
            self._view[: len(part)] = part
            self._inspect(len(part))


def _protocol_of(transport: Any) -> Any:
    """Return the protocol above; None after a second `close`, with which asyncio's transport drops its SSLProtocol."""
    try:
        return transport.get_protocol()
    except AttributeError:
        return None


def _is_record(header: bytes) -> bool:
    """Return whether a record may begin so. OpenSSL refuses anything else at once, and should not wait for the rest of it."""
    return header[0] in _TYPES and header[1] == 3 and (header[3] << 8 | header[4]) <= _LONGEST
