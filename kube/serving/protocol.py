"""uvicorn's HTTP protocol held to limits: of a request's head, of the time that each part of a request takes, of what is kept.

A head that is too large is answered with 431 (a target with 414), as Go's server does; what is too slow is closed. Of a
request that requests an upgrade the bytes behind the head are kept for whoever takes the connection over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools

from kube.serving.limits import ServingLimits
from kube.serving.sending import SendingProtocol
from kube.serving.table import Connection, ConnectionTable, Stage
from kube.serving.uvicorn_modules import STATUS_LINE, RequestResponseCycle

UPGRADE = "wherry.upgrade"
"""Key of a scope: whether this request asks for another protocol, by what the parser has read of it."""
REFUSED = 0.5
"""Seconds between a refusal and the close: closing at once with unread bytes would reset the connection before it is read."""
_EARLY = 64 << 10
BESIDE_BODY = 64 << 10
"""Bytes that may come in a body without a byte of it, such as trailers: the parser joins the value of one anew at each read."""
CHUNKS, CHUNK_BYTES = 256, 32
"""Chunks of a body that one read (of TLS, one record) may bring, and bytes of it for each one more: a chunk of one byte costs
the parser as much as hundreds of bytes of a larger one."""


class _Refused(Exception):
    """A request is refused before it reaches the application: status and text."""


def _announces_body(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")


class BoundedProtocol(SendingProtocol):
    """One connection; `admitted` is called before anything else."""

    successor: Callable[[bytes], None] | None = None
    """Gets all bytes once it has taken the connection over."""
    upgrading: RequestResponseCycle | None = None
    """The request that asked for another protocol: the last one, which may wait for the responses to others."""
    received = 0
    """Calls that brought bytes (`kube/tls_records.py`)."""
    _lost: asyncio.Event | None = None

    def admitted(self, connection: Connection, table: ConnectionTable, limits: ServingLimits) -> None:
        """Take over the connection's entry in the table and the limits to keep."""
        self.connection, self.table, self.limits = connection, table, limits
        self._looked_at = min(limits.large_head, limits.head_bytes)
        self.timeout_keep_alive = limits.idle_timeout  # type: ignore[assignment]
        self.early = b""
        self._in_head = self._in_body = False
        self._fed = self._chunk = self._body = self._seen = self._charged = self._chunks = self._beside = 0
        self._moved = False
        """The last read brought a part of the body."""
        self._idle_since: float | None = None
        self._progress: asyncio.TimerHandle | None = None
        self._slowed: asyncio.TimerHandle | None = None
        self.parser = None  # a reference cycle, which nothing breaks if the handshake fails

    # -- the connection -------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        super().connection_made(transport)
        self.connection.stage = Stage.HEAD
        self._expect_head()

    @property
    def who(self) -> str:
        """Return what the connection is counted with: the user, before that the address."""
        return self.connection.who

    async def until_lost(self) -> None:
        """Wait until the connection is lost."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self.transport.is_closing():
                self._lost.set()
        await self._lost.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is not None:
            self._lost.set()
        self.stop_timers()
        if self._slowed is not None:
            self._slowed.cancel()
        self.table.remove(self.connection)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.forget()

    def forget(self) -> None:
        super().forget()
        self.upgrading = None

    def stop_timers(self) -> None:
        """End all time limits: the connection is refused, lost, or no longer HTTP's."""
        for timer in (self._progress, self.sending):
            if timer is not None:
                timer.cancel()
        self._progress = self.sending = None
        self.stop_counting()

    # -- receiving ------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        """Parse, within the limits; what follows the head of an upgrade is kept, or goes to who took the connection over."""
        self.received += 1
        if self.successor is not None:
            self.successor(data)
            return
        if self.closing:
            return
        if self.upgrading is not None:
            self._keep_early(data)
            return
        self._idle_since = None
        self._chunk, self._chunks = len(data), 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.upgrading = self.cycle
            # Nothing on this connection can be a request again, whether the upgrade comes about or not.
            if self.cycle is not None:
                self.cycle.keep_alive = False
            self._keep_early(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._unparsed(error)
            return
        if self._in_head or self._in_body or self.cycle is None or self.cycle.response_complete:
            self._incomplete(len(data))

    def _nothing_asked(self) -> bool:
        """Return whether no request is being answered: then the bytes were empty lines, or the end of a refused body."""
        return self.cycle is None or self.cycle.response_complete

    def _incomplete(self, size: int) -> None:
        """Note that a head or a body is under way, and that its time runs."""
        if not self._in_body:
            self._fed += size
            if self._fed > self.limits.head_bytes:
                self._refuse(431)
                return
            self.table.hold_head(self.connection, self._fed)
            self._expect_head()
            if self._fed > self.limits.large_head:
                self._charge(self._fed)
            return
        # Chunks' lengths, their extensions and trailers are no body; what there is of them is kept by the parser, or skipped.
        self._fed += size
        self._beside = 0 if self._moved else self._beside + size
        self._moved = False
        if self._beside > BESIDE_BODY or self._fed - self._body > self.limits.head_bytes + 16 * self._body:
            self._refuse(431)
        elif self._progress is None:
            self._seen = 0
            self._progress = self.loop.call_later(self.limits.body_window, self._body_slow)

    def _expect_head(self) -> None:
        if self._progress is None:
            self._progress = self.loop.call_later(self.limits.head_timeout, self._head_slow)

    def _head_slow(self) -> None:
        """Close the connection, unless an earlier request on it is still being answered."""
        self._progress = None
        if self._nothing_asked() or self.pipeline:
            self.abort()
        else:
            self._expect_head()

    def _body_slow(self) -> None:
        """Close the connection if too little of a body came; while the reader makes the client wait, its time stands still."""
        self._progress = None
        if not self._in_body:
            return
        waiting = self.flow.read_paused or bool(self.pipeline)
        if not waiting and self._seen < self.limits.body_rate * self.limits.body_window:
            self.abort()
            return
        self._seen = 0
        self._progress = self.loop.call_later(self.limits.body_window, self._body_slow)

    def _keep_early(self, data: bytes) -> None:
        self.early += data
        if len(self.early) > _EARLY:
            self.flow.pause_reading()
        if len(self.early) > _EARLY + self.limits.head_bytes:
            self.abort()

    # -- the parser's calls ---------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.limits.line_bytes:
            raise _Refused(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        # As uvicorn's, which calling would cost each header of each request a little.
        if not self._in_head:
            return  # a trailer, which a proxy in between may not have checked as it does headers (RFC 9110, 6.5.1)
        name, headers = name.lower(), self.headers
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        headers.append((name, value))
        if len(headers) > self.limits.headers:
            raise _Refused(431)

    def on_headers_complete(self) -> None:
        app, large = self.app, self._fed + self._chunk > self._looked_at and self._large_head()
        if len(self.pipeline) >= self.limits.pipelined:
            raise _Refused(429)
        upgrade = self.parser.should_upgrade()
        if upgrade and any(map(_announces_body, self.headers)):
            raise _Refused(400)  # the parser ends such a request behind its head, as if it had no body
        if self._fed:
            self.table.hold_head(self.connection, 0)
        self._fed = self._body = self._charged = self._beside = 0
        self._in_head, self._in_body = False, True
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None
        self.connection.stage = Stage.REQUEST
        if large:
            self.app = self._queue_large_head(app)
        # Kept for each request: when one is served, the parser may have read others that follow it.
        cast(dict[str, Any], self.scope)[UPGRADE] = upgrade
        super().on_headers_complete()
        self.app = app

    def _large_head(self) -> bool:
        """Return whether a head is large, and charge it; refuses one that is too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.head_bytes:
            raise _Refused(431)
        self._charge(size)
        return size > self.limits.large_head

    def _queue_large_head(self, app: Any) -> Any:
        """Return the application for a request with a large head, which waits in the fair queue of such requests."""

        async def run(scope: Any, receive: Any, send: Any) -> None:
            await self.table.large_heads.wait(self.connection.who)
            await app(scope, receive, send)

        return run

    def _charge(self, size: int) -> None:
        """Charge what has come of a large head, and read on when its sender may send more.

        It is charged as it arrives: many heads could be held back and completed together otherwise.
        """
        self.table.charge_head(self.connection, size, self._charged)
        self._charged = max(self._charged, size)
        delay = self.table.head_delay(self.connection)
        if delay and self._slowed is None:
            self.transport.pause_reading()
            self._slowed = self.loop.call_later(delay, self._resume_reading)

    def _resume_reading(self) -> None:
        self._slowed = None
        if not (self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > CHUNKS + self._chunk // CHUNK_BYTES:
            raise _Refused(400)

    def on_body(self, body: bytes) -> None:
        self._seen += len(body)
        self._body += len(body)
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._fed = 0
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None
        cycle = self.cycle
        if not cycle.response_complete:  # as uvicorn's, without what it asks the parser about upgrades
            cycle.more_body = False
            cycle.message_event.set()

    def _unparsed(self, error: httptools.HttpParserError) -> None:
        """Answer what is no request that is served."""
        refused = error.__context__
        if isinstance(refused, _Refused):
            self._refuse(refused.args[0])
        else:
            self._refuse(400)

    def _refuse(self, status: int) -> None:
        """Answer and close, unless an earlier request is still being answered: then only close."""
        self.closing = True
        self.stop_timers()
        if not self._nothing_asked():
            self.abort()
            return
        reason = STATUS_LINE[status].split(b" ", 1)[1].strip()
        headers = b"".join(b"%b: %b\r\n" % pair for pair in self.server_state.default_headers)
        self.transport.write(
            STATUS_LINE[status]
            + headers
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            % len(reason)
            + reason
        )
        self.table.hold_head(self.connection, 0)
        self.parser = None
        self.headers, self.url = [], b""
        self._progress = self.loop.call_later(REFUSED, self.close)

    def on_response_complete(self) -> None:
        """Begin with the next request, or wait for one."""
        connection = self.connection
        connection.stage = Stage.REQUEST if self.pipeline else Stage.IDLE
        self.may_read_slowly, connection.work_of = False, ""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._wait_for_request()
        if self._in_body:
            self.loop.call_later(REFUSED, self._unwanted)

    def _wait_for_request(self) -> None:
        """Begin the time for which the connection may be idle. There is one timer a connection, not one a request."""
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, in a while even if its last answer is not read, if it has been idle for all of its time."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # a request is being answered
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            self.close()

    def _unwanted(self) -> None:
        """Close the connection if the rest of a body still comes that the answer did not wait for."""
        if self._in_body and self._nothing_asked() and not self.transport.is_closing():
            self.closing = True
            self.close()

    def _should_upgrade(self) -> bool:
        return False  # requests for WebSockets too go to the application, which authorises them first


def end(protocol: asyncio.Protocol) -> None:
    """Close a bounded protocol's connection at once."""
    cast(BoundedProtocol, protocol).abort()
