"""Client transport for components in the server's own process: the same pipeline, without a socket.

A caller is a user it is given, so authentication is skipped; authorization, admission, storage and the watch path are
those of everybody. Answers of other servers, behind a proxy, are read up to a limit (answer_limits.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote, urlencode

from control.auth.authenticators import with_authenticated
from control.auth.user import Credentials, UserInfo
from control.http.chunks import close
from control.http.exchange import Answer, Request, Stream
from control.http.exchange import Response as Answered
from control.http.pieces import whole
from control.server.answer_limits import LONGEST_ANSWER, joined, limited
from control.server.pipeline import Pipeline
from kube.client import Response, error_of
from kube.errors import bad_request
from kube.errors import timeout as timed_out

NOBODY = Credentials()


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
                        what = f"the answer to {method} {path}"
                        body = await joined(chunks, what, most_bytes or LONGEST_ANSWER)
                        return Response(answer.status, _headers(answer), body)
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
        async with _closing(answer.chunks) as chunks, _closing(limited(chunks, f"an event of {path}")) as whole_lines:
            yield whole_lines

    async def close(self) -> None:
        """Nothing is held."""


@contextlib.asynccontextmanager
async def _closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    try:
        yield chunks
    finally:
        await close(chunks)


def _headers(answer: Answered | Stream) -> dict[str, str]:
    found = {"Content-Type": answer.content_type.decode()}
    found.update({name.decode("latin-1").title(): value.decode("latin-1") for name, value in answer.headers})
    return found
