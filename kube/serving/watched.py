"""Wrapper of a protocol behind an acceptor: removes its connection from the table at its end, and limits its duration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from kube.serving.table import Connection, ConnectionTable, Stage

READ_BYTES = 32 << 10
"""The most that a connection with a limit may send at once: what one read brings is parsed in one step of the event loop."""
GRACE = 5.0
"""Seconds that a connection has to finish what it is doing once its time is over."""


class Watched(asyncio.Protocol):
    """Passes everything on to `inner`; `finish` is called after `lifetime` seconds (0: never) to end it in order.

    With `most` the connection is closed when it has sent more bytes than that, or more than READ_BYTES at once.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        connection: Connection,
        table: ConnectionTable,
        lifetime: float = 0.0,
        finish: Callable[[], None] = lambda: None,
        most: int = 0,
    ) -> None:
        self._inner, self._connection, self._table = inner, connection, table
        self._lifetime, self._finish, self._most = lifetime, finish, most
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connection.stage = Stage.HEAD
        if self._lifetime:
            self._timer = asyncio.get_running_loop().call_later(self._lifetime, self._over)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.received += 1
        self._bytes += len(data)
        if self._most and (len(data) > READ_BYTES or self._bytes > self._most):
            self.abort()
            return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._table.remove(self._connection)
        self._inner.connection_lost(exc)

    def _over(self) -> None:
        self._finish()
        self._timer = asyncio.get_running_loop().call_later(GRACE, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()


def end(protocol: asyncio.Protocol) -> None:
    """Close a watched protocol's connection at once."""
    cast(Watched, protocol).abort()
