"""A node's heartbeats: requests with reserved places on a client's connections, and a short timeout.

A cluster's node controller gives up on a node whose lease is late. Requests that wait (each for a webhook that hangs, up to
30 s) would keep the lease waiting in line behind them, so it has places that no other request takes; upstream's kubelet has a
"heartbeat client" for it. A request that its own limit ends says nothing of the server, which is not left for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from kube.client import Response
from kube.transport import HttpsTransport

PLACES = 2
"""The lease's request and that of the node's status."""


class Heartbeats:
    """A `Transport` over another one's connections; `seconds` is the longest that a request may take."""

    def __init__(self, transport: HttpsTransport, seconds: float) -> None:
        self._transport, self._seconds = transport, seconds

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
        most_bytes: int | None = None,
    ) -> Response:
        seconds = min(self._seconds, timeout or self._seconds)
        return await self._transport.request(
            method, path, query=query, headers=headers, body=body, timeout=seconds, places=PLACES, most_bytes=most_bytes
        )

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(path, query=query)

    async def close(self) -> None:
        """Do nothing: the connections are the other transport's."""
