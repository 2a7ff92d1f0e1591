"""Transport that retries after the time that a server requests, as client-go does: for commands, which send a request once.

A server that cannot answer now (429, or 500 and above) and says after how many seconds to ask again has done nothing, so any
request may be sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from kube.client import Response, Transport
from kube.clock import SYSTEM, Clock

TIMES = 10


class RetryAfterTransport:
    """A transport that sends a request up to ten times more to a server that requests it with Retry-After."""

    def __init__(self, inner: Transport, clock: Clock = SYSTEM) -> None:
        self._inner, self._clock = inner, clock

    @property
    def inner(self) -> Transport:
        """The transport that sends the requests."""
        return self._inner

    @property
    def server(self) -> str:
        """The server in use, if the inner transport reports it."""
        return getattr(self._inner, "server", "")

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        for left in reversed(range(TIMES + 1)):
            answer = await self._inner.request(
                method, path, query=query, headers=headers, body=body, timeout=timeout, most_bytes=most_bytes
            )
            pause = answer.headers.get("Retry-After", "")
            if not left or not pause.isdecimal() or (answer.status != 429 and answer.status < 500):
                return answer
            await self._clock.sleep(int(pause))
        raise AssertionError("the last attempt returns")

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(path, query=query)

    async def close(self) -> None:
        await self._inner.close()
