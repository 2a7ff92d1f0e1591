"""Forwards reads of objects and logs to the API server, whose credentials the browser never gets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from kube.client import JSON, Client, error_of
from kube.errors import AnswerTooLong, StatusError
from wherry.ui import paths
from wherry.ui.places import Places
from wherry.ui.streaming import Streamed

READS, LOGS = 32, 12
"""Reads and logs at a time, of all tabs; the client sends at most 16 of the reads to the server."""
MOST_BYTES = 16 << 20
"""Bytes of an answer; the page lists collections in parts, which have fewer objects if they are larger than that."""
SECONDS = 30.0


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Give the error of an answer that is too long a reason, by which the page knows it."""
    try:
        yield
    except AnswerTooLong as error:
        raise StatusError(502, "AnswerTooLong", error.message) from error


class Reading:
    """Reads with one client."""

    def __init__(self, client: Client, stop: asyncio.Event) -> None:
        self._client, self._stop = client, stop
        self._reads, self._logs = Places(READS, "requests"), Places(LOGS, "logs")

    async def answer(self, request: Request) -> ASGIApp:
        """Return the server's own answer. Raise StatusError."""
        target = paths.parse(request.scope["path"])
        query = paths.query(target, request.query_params.multi_items())
        if target.log:
            return Streamed(self._log(target.path, query), "text/plain; charset=utf-8", self._stop)
        with self._reads.one(), _limited():
            answer = await self._client.transport.request(
                "GET", target.path, query=query, headers={"Accept": JSON}, timeout=SECONDS, most_bytes=MOST_BYTES
            )
        if answer.status == 401:
            raise error_of(answer.status, answer.body)
        if answer.status != 200 and not 400 <= answer.status < 600:
            raise StatusError(502, "BadGateway", f"the API server's answer has the status {answer.status}")
        return Response(answer.body, answer.status, media_type=JSON)

    @contextlib.asynccontextmanager
    async def _log(self, path: str, query: dict[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        with self._logs.one():
            async with self._client.transport.stream(path, query=query) as chunks:
                yield chunks
