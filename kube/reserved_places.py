"""Requests with places of their own on a client's connections, which wait for none of its other requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from kube.client import Response
from kube.transport import HttpsTransport


class ReservedPlaces:
    """A `Transport` over another one's connections, with so many of them; `seconds` is the longest that a request may take.

    A request that its own limit ends says nothing of the server, which is not left for it.
    """

    def __init__(self, transport: HttpsTransport, places: int, seconds: float) -> None:
        self._transport, self._places, self._seconds = transport, places, seconds

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
        places = self._places
        return await self._transport.request(
            method, path, query=query, headers=headers, body=body, timeout=seconds, places=places, most_bytes=most_bytes
        )

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(path, query=query)

    async def close(self) -> None:
        """Do nothing: the connections are the other transport's."""
