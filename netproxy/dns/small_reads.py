"""Protocol that reads little from its socket at once: asyncio and uvloop read up to 256 KiB before a stream can pause them."""

from __future__ import annotations

import asyncio
from typing import cast

from kube.serving.watched import Watched


class SmallReads(asyncio.BufferedProtocol):
    """Passes everything on to `inner`. Connections may share the buffer: what is read is passed on before the next read."""

    def __init__(self, inner: Watched, buffer: memoryview) -> None:
        self._inner, self._buffer = inner, buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._inner.abort()


def end(protocol: asyncio.BaseProtocol) -> None:
    """Close such a protocol's connection at once."""
    cast(SmallReads, protocol).abort()
