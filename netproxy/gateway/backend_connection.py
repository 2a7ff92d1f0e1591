"""A connection to a backend: one request at a time, and a response whose body is read as fast as the client takes it.

The parser is given little at a time, round robin over namespaces: responses of many tiny chunks would otherwise occupy the
event loop for as long as their author likes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from netproxy.gateway.cost_queue import CostQueue
from netproxy.gateway.errors import BackendError, BackendTimeout
from netproxy.gateway.limits import BackendLimits
from netproxy.gateway.response import ResponseHead
from netproxy.gateway.response_parser import ResponseParser

SLICE = 16 << 10
"""Bytes that are parsed in one turn."""
SLICE_COST, CALLS = 16, 16
"""Cost of a slice, most of it for what it wakes, and calls of the parser that cost one more (`CostQueue`)."""


class BackendConnection(asyncio.Protocol):
    """`closed` is called once when the connection has ended; `slices` lets owners parse responses round robin."""

    def __init__(
        self, limits: BackendLimits, closed: Callable[[BackendConnection], None], slices: CostQueue, owner: str
    ) -> None:
        self.limits, self._closed = limits, closed
        self._slices, self._owner = slices, owner
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.error: BackendError | None = None
        self.idle_since = 0.0
        self.used = False
        """A request has been sent on it before."""
        self.request_sent = False
        """All of the request has been sent: else the backend would take what comes next for the rest of its body."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending = b""
        self._paused = self._active = self._lost = self._reset = self._upgrade = False
        self.successor: Callable[[bytes], None] | None = None
        """Gets all bytes once the connection has been upgraded."""
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self._response = ResponseParser(limits, head_only=False, upgrade=False)

    @property
    def complete(self) -> bool:
        """True if the whole response has come."""
        return self._response.complete

    @property
    def received(self) -> bool:
        """True if a byte of the response has come."""
        return self._response.received

    # -- the connection -------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost, self._reset = True, exc is not None
        response = self._response
        if not self._pending or self.error is not None or response.upgraded or response.complete:
            self._end()  # otherwise once the rest has been parsed
        self._closed(self)

    def _end(self) -> None:
        if self.error is None and not self._reset:
            self._response.end()
        self.fail(BackendError("the backend has closed the connection"))

    def eof_received(self) -> bool:
        if self.successor is not None:
            self.fail(BackendError("the backend has closed the connection"))
        return False

    def fail(self, error: BackendError) -> None:
        """Close the connection at once; who waits for it gets the error, unless the response is complete."""
        if self.error is None:
            self.error = error
        self._stop_timer()
        self._writable.set()
        if self.transport is not None:
            self.transport.abort()
        if self.on_end is not None:
            self.on_end()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()
        if self.on_pause is not None:
            self.on_pause()

    def resume_writing(self) -> None:
        self._writable.set()
        if self.on_resume is not None:
            self.on_resume()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if not self._paused and self.error is None and not self._lost:
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and self.error is None and not self._pending and not self._lost:
            self._paused = False
            with contextlib.suppress(RuntimeError):
                self.transport.resume_reading()

    # -- a request ------------------------------------------------------------------------------------------------
    def begin(self, data: bytes, *, head_only: bool, upgrade: bool, body_follows: bool) -> None:
        """Send a request's head; `head_only`: the response has no body, `upgrade`: it may be a 101.

        If a body follows, set `request_sent` when all of it has been sent.
        """
        self._upgrade = upgrade
        self.request_sent = not body_follows
        self._response = ResponseParser(self.limits, head_only=head_only, upgrade=upgrade)
        self.used = self._active = True
        self.transport.write(data)

    async def write(self, data: bytes) -> None:
        """Send a part of a request's body; BackendError if the backend does not read or has closed the connection."""
        if self.error is not None:
            raise self.error
        self.transport.write(data)
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(self.limits.stall_timeout):
                    await self._writable.wait()
            except TimeoutError:
                self.fail(BackendTimeout("the backend does not read the request"))

    async def read_head(self) -> ResponseHead:
        """Return the response's head; BackendError if none comes."""
        while (head := self._response.head) is None:
            if self.error is not None:
                raise self.error
            await self._wait()
        return head

    def expect_head(self) -> None:
        """Limit the time until the response's head."""
        if self._response.head is None:
            self._start_timer(self.limits.response_timeout)

    def take(self) -> bytes:
        """Return what has come of the body."""
        return self._response.take()

    async def read(self) -> bytes:
        """Return the next part of the body, b"" at its end; BackendError if it ends early or nothing comes for long."""
        response = self._response
        while not response.parts:
            if response.complete:
                return b""
            if self.error is not None:
                raise self.error
            self.resume_reading()
            self._start_timer(self.limits.silence_timeout)
            await self._wait()
        self._stop_timer()
        return response.take()

    def finish(self) -> bool:
        """End the request; return whether the connection can be used for another one.

        Not after an upgrade, also if the backend responds without switching: it may yet do so.
        """
        self._active = False
        self._stop_timer()
        response = self._response
        over = self.request_sent and response.complete and not response.parts and not self._pending
        if not over or self._upgrade or not response.reusable or self.error is not None:
            return False
        self.resume_reading()
        return not self._paused

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.fail, BackendTimeout("the backend does not respond"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- receiving ------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self.successor is not None:
            self.successor(data)
        elif self._pending or self._response.upgraded:
            self._pending += data
        elif not self._active or self._response.complete:
            self.fail(BackendError("the backend has sent what was not requested"))
        else:
            self._pending = data
            self._slices.run(self._owner, self._parse_slice)
            if self._pending:
                self.pause_reading()

    def _parse_slice(self) -> int:
        """Parse a slice of what has come and return the cost; the rest waits for another turn, with no more read meanwhile."""
        response, data = self._response, self._pending
        if self.error is not None or not data or response.upgraded:
            return 0
        if response.complete:
            self.fail(BackendError("the backend has sent what was not requested"))
            return 0
        piece, self._pending = (data, b"") if len(data) <= SLICE else (data[:SLICE], data[SLICE:])
        calls = response.calls
        try:
            rest = response.feed(piece)
        except BackendError as error:
            self._pending = b""
            self.fail(error)
        else:
            self._parsed(rest)
        return SLICE_COST + (response.calls - calls) // CALLS

    def _parsed(self, rest: bytes) -> None:
        """Continue after a slice: with the next one, with reading, or not before the client has read; `rest` follows a 101."""
        response = self._response
        if response.head is not None:
            self._stop_timer()
            self._wake()
        if response.upgraded:
            self._pending = rest + self._pending
            self.pause_reading()
        elif self._pending:
            self.pause_reading()
            self._slices.add(self._owner, self._parse_slice)
        elif response.buffered >= self.limits.buffered:
            self.pause_reading()
        else:
            self.resume_reading()
        if self._lost and (not self._pending or response.complete or response.upgraded):
            self._end()

    def take_over(self, receive: Callable[[bytes], None]) -> bytes:
        """Give an upgraded connection's bytes to `receive` from now on; return those that have come already."""
        data, self._pending = self._pending, b""
        self.successor = receive
        self._stop_timer()
        return data
