"""The client transport of what runs in the server's own process: the same pipeline, without a socket.

A caller is a user it is given, so authentication is skipped; authorization, admission, storage and the watch path are
those of everybody. This server's own answers are whole, but for watches. Other answers in chunks are those of servers behind a
proxy, above all of extension API servers: they are read up to a limit of bytes and of values, since controllers decode them in
this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote, urlencode

from control.auth.authenticators import with_authenticated
from control.auth.user import Credentials, UserInfo
from control.http.exchange import Answer, Request, Stream
from control.http.exchange import Response as Answered
from control.http.pieces import whole
from control.server.pipeline import Pipeline
from kube.client import Response, error_of
from kube.errors import StatusError, bad_request, long_answer
from kube.errors import timeout as timed_out
from kube.value_count import marks

NOBODY = Credentials()
LONGEST_ANSWER = 32 << 20
"""Bytes of an answer of another server, unless the caller wants fewer."""
BYTES_PER_VALUE = 16
"""Length of a value of JSON on average, at least: usual objects have twice as many bytes for each comma or bracket."""
LONGEST_EVENT = 8 << 20
"""Bytes of one event of a watch. Objects of this server have 1.5 MiB."""


class InProcessTransport:
    """A `kube.client.Transport` into a pipeline, as one user."""

    def __init__(self, pipeline: Pipeline, user: UserInfo, user_agent: str = "") -> None:
        self._pipeline, self._user = pipeline, with_authenticated(user)
        self._agent = (user_agent or user.name.rpartition(":")[2]).encode()

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None, body: bytes
    ) -> Answer:
        async def read(limit: int) -> bytes:
            return body

        pairs = {b"user-agent": self._agent}
        for name, value in (headers or {}).items():
            pairs[name.lower().encode()] = value.encode()
        if "%2f" in path.lower():  # decoded, it would lead to another object or to a subresource
            raise bad_request(f"invalid request path {path}")
        request = Request(method, unquote(path), urlencode(query or {}).encode(), pairs, read)
        return await self._pipeline.answer(request, NOBODY, self._user)

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
        """Send a request and return the whole answer; raises StatusError after `timeout` seconds, also for proxies.

        Raises StatusError 502 for another server's answer of more than `most_bytes`.
        """
        path, _, more = path.partition("?")
        if more:
            query = {**dict(part.partition("=")[::2] for part in more.split("&")), **(query or {})}
        try:
            async with asyncio.timeout(timeout):
                answer = await self._answer(method, path, query, headers, body)
                if isinstance(answer, Stream):
                    async with _closing(answer.chunks) as chunks:
                        joined = await _joined(chunks, f"the answer to {method} {path}", most_bytes or LONGEST_ANSWER)
                        return Response(answer.status, _headers(answer), joined)
        except TimeoutError:
            raise timed_out(f"no answer to {method} {path} within {timeout} seconds") from None
        assert isinstance(answer, Answered)
        return Response(answer.status, _headers(answer), whole(answer.body))

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET a long answer in chunks; anything but a stream raises StatusError."""
        answer = await self._answer("GET", path, query, {"accept": "application/json"}, b"")
        if isinstance(answer, Answered):
            raise error_of(answer.status, whole(answer.body))
        assert isinstance(answer, Stream)
        async with _closing(answer.chunks) as chunks, _closing(_limited(chunks, f"an event of {path}")) as limited:
            yield limited

    async def close(self) -> None:
        """Nothing is held."""


@contextlib.asynccontextmanager
async def _closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    try:
        yield chunks
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


async def _joined(chunks: AsyncIterator[bytes], what: str, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    size, values, most_values = 0, 0, most_bytes // BYTES_PER_VALUE
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        values += marks(chunk)
        if size > most_bytes:
            raise long_answer(what, most_bytes)
        if values > most_values:
            raise StatusError(502, "", f"{what} has more than {most_values} values")
    return b"".join(parts)


async def _limited(chunks: AsyncIterator[bytes], what: str) -> AsyncIterator[bytes]:
    """Pass a stream on; raises StatusError 502 where a line of it is longer than LONGEST_EVENT."""
    size = 0
    async for chunk in chunks:
        end = chunk.rfind(b"\n")
        size = size + len(chunk) if end < 0 else len(chunk) - end - 1
        if size > LONGEST_EVENT:
            raise long_answer(what, LONGEST_EVENT)
        yield chunk


def _headers(answer: Answered | Stream) -> dict[str, str]:
    found = {"Content-Type": answer.content_type.decode()}
    found.update({name.decode("latin-1").title(): value.decode("latin-1") for name, value in answer.headers})
    return found
