"""The body of a request as the ASGI server hands it over: read on demand, in whole or in parts, and never past its limit.

An incomplete one is received before its request takes a seat of API priority and fairness, and charged to its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from control.http.protocol import ApiProtocol
from control.server.body_charge import BodyCharge
from kube import errors
from kube.serving.uvicorn_modules import RequestResponseCycle

Receive = Callable[[], Awaitable[dict[str, Any]]]
_LEFT = "the client went away in the middle of its request"


def do_nothing() -> None:
    """Do nothing."""


class RequestBody:
    """A request's body; `seconds` limit the time in which the client sends it.

    A body that is incomplete at first is charged to the connection `protocol`.
    """

    charge: BodyCharge | None = None
    """Set while the body is incomplete, or complete and not taken yet."""
    _received: tuple[bytes, ...] | list[bytes] = ()
    _size = 0

    def __init__(
        self,
        headers: dict[bytes, bytes],
        receive: Receive,
        cycle: RequestResponseCycle | None,
        seconds: float,
        protocol: ApiProtocol | None = None,
    ) -> None:
        self._receive, self._cycle, self._seconds = receive, cycle, seconds
        self.begun: Callable[[], None] = do_nothing
        """Called when reading begins, after authentication."""
        length = headers.get(b"content-length")
        self.length = int(length) if length and length.isdigit() else None
        self.chunked = b"transfer-encoding" in headers
        self.done = not self.chunked and not self.length
        self.incomplete = not self.done and cycle is not None and cycle.more_body
        """True if a part of the body was not received yet when the request began."""
        self._protocol = protocol if self.incomplete else None

    def left(self) -> bool:
        """Return whether the client has closed its connection."""
        return self._cycle is not None and self._cycle.disconnected

    async def collect(self, limit: int) -> None:
        """Receive a body for `read`, before the request has a seat; a larger one stays for whoever reads it."""
        if self.length is None or self.length <= limit:
            self.begun()
            async with asyncio.timeout(self._seconds):
                await self._receive_most(limit)

    async def read(self, limit: int) -> bytes:
        if self.done and not self._received:
            return b""
        if self.length is not None and self.length > limit:
            raise errors.too_large(limit)
        self.begun()
        if not self.done and self._cycle is not None and not self._cycle.more_body and not self._received:
            part = await self._part()
            if self.done and len(part) <= limit:
                return part
            self._received, self._size = [part], len(part)
        # A client that sends slowly has as long as any request, also where what becomes of the body may take longer.
        async with asyncio.timeout(self._seconds):
            await self._receive_most(limit)
        if self._size > limit:
            raise errors.too_large(limit)
        self.release()
        parts, self._received = self._received, ()
        return b"".join(parts)

    async def _receive_most(self, limit: int) -> None:
        """Receive the body, or of one of unknown length a little more than the limit."""
        received = self._received = list(self._received)
        while not self.done and self._size <= limit:
            received.append(await self._part())
            self._size += len(received[-1])
            if not self.done and self._protocol is not None:
                if self.charge is None:
                    self.charge = BodyCharge(self._protocol)
                self.charge.note(self._size)
        if self.done and self.charge is not None:
            self.charge.complete()

    async def _part(self) -> bytes:
        """Receive the next part of the body; raises 400 if the client has left in the middle of it."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            # Half a body must not be taken for a whole one: a DELETE would lose its preconditions.
            raise errors.bad_request(_LEFT)
        self.done = not message.get("more_body")
        part: bytes = message.get("body", b"")
        return part

    def release(self) -> None:
        """Charge the connection no longer."""
        charge, self.charge = self.charge, None
        if charge is not None:
            charge.release()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, without a limit; raises 400 if the client leaves in the middle of it."""
        received, self._received = self._received, ()
        self.release()
        for part in received:
            yield part
        if not self.done:
            self.begun()
        while not self.done:
            if part := await self._part():
                yield part

    async def drain(self) -> None:
        """Take the end of an empty body off the channel, so that what comes next is the client's going away."""
        if self.done and self.length is None and not self.chunked:
            await self._receive()
