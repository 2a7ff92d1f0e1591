"""HTTPS to the API servers: pooled aiohttp sessions, client certificate or bearer token.

One server is in use at a time (servers.py lists them). The client switches to the next one when a connection fails, or when
the server is not ready for some seconds. Pending requests that are idempotent are sent to the next server; for others the
caller gets 503 and, being level-triggered, retries. Watches end, and informers resume them from their revision, which is valid
on every server.

The token may be in a file that is rotated; it is read again at most once a minute, as in client-go, and the last token is used
if the file cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp

from kube import servers as known
from kube.client import Response, error_of
from kube.clock import SYSTEM, Clock
from kube.connections import ERRORS, REQUESTS, AnswerTooLong, Connections
from kube.error_words import words
from kube.errors import StatusError, Unreachable, long_answer
from kube.kubeconfig import Access
from kube.loops import Loops
from kube.server_certificates import NodesCertificate
from kube.servers import Servers
from kube.tracing import spans, traceparent

log = logging.getLogger(__name__)

TOKEN_LIFE = 60.0
"""Seconds that a token read from a file is used."""
PAUSE_SECONDS = 0.5
"""Interval of readiness checks of all servers while none is ready."""


class HttpsTransport:
    """A `Transport` to the servers of one cluster, as an `Access` says. Make and close it inside a running loop.

    Without `servers` there is only the one that the access names.
    """

    def __init__(
        self, access: Access, user_agent: str = "wherry", servers: Servers | None = None, clock: Clock = SYSTEM
    ) -> None:
        self._access, self._agent, self._clock = access, user_agent, clock
        self._servers, self._several = servers or Servers(access.server), servers is not None
        self._token = access.token
        self._token_read = float("-inf")
        self._connections: dict[str, Connections] = {}
        self._choosing = asyncio.Lock()
        self._chosen = float("-inf")
        self._last_response = float("-inf")
        self._server_checks: asyncio.Task[None] | None = None
        self._watched, self._return_at = "", 0.0
        self._closed = False

    @property
    def server(self) -> str:
        """The server in use."""
        return self._servers.current

    # -- requests -------------------------------------------------------------------------------------------------
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        places: int = REQUESTS,
        most_bytes: int | None = None,
    ) -> Response:
        """Send a request; with other `places` it waits for none of the rest, and its timeout says nothing of the server.

        An answer of more than `most_bytes` is an error (502). Without a limit the server is one that is trusted.
        """
        for last in (False, True):
            connections = self._to(self.server)
            try:
                sent = await connections.request(
                    method, path, query or {}, self._headers(headers), body, timeout, places, most_bytes
                )
            except AnswerTooLong as error:
                raise long_answer(f"the answer to {method} {path}", most_bytes or 0) from error
            except ERRORS as error:
                if places != REQUESTS and isinstance(error, TimeoutError):
                    again = self._connections.get(self.server) is not connections and not last
                else:
                    again = await self._fail_over(connections, error) and not last
                if not again or not _harmless(method, error):
                    raise _unreachable(connections.server, error) from error
                continue
            if sent[0] < 500:
                self._last_response = self._clock.monotonic()
            return Response(*sent)
        raise AssertionError("the second attempt returns or raises")

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        connections = self._to(self.server)
        sent = self._headers({"Accept": "application/json", **(headers or {})})
        try:
            answer = await connections.open(path, query or {}, sent)
        except ERRORS as error:
            await self._fail_over(connections, error)
            raise _unreachable(connections.server, error) from error
        try:
            if answer.status != 200:
                try:
                    body = await connections.error_body(answer)
                except ERRORS as error:
                    raise _unreachable(connections.server, error) from error
                raise error_of(answer.status, body)
            yield self._chunks(connections, answer)
        finally:
            answer.close()

    @contextlib.asynccontextmanager
    async def socket(
        self, path: str, subprotocol: str, *, most_bytes: int
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Lend a WebSocket, whose messages have at most `most_bytes`; `path` has its query. Raises StatusError on entry."""
        connections = self._to(self.server)
        try:
            opened = await connections.open_socket(path, self._headers(None), subprotocol, most_bytes)
        except aiohttp.WSServerHandshakeError as error:
            reason = "Forbidden" if error.status == 403 else "NotFound" if error.status == 404 else ""
            raise StatusError(error.status, reason, f"the API server refused it with status {error.status}") from error
        except ERRORS as error:
            await self._fail_over(connections, error)
            raise _unreachable(connections.server, error) from error
        async with opened:
            yield opened

    async def _chunks(self, connections: Connections, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in connections.chunks(answer):
                yield chunk
        except ERRORS as error:
            await self._fail_over(connections, error)
            raise _unreachable(connections.server, error) from error

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        found = dict(headers or {})
        if self._access.token_file and self._clock.monotonic() - self._token_read > TOKEN_LIFE:
            self._token = self._read_token(self._access.token_file)
            self._token_read = self._clock.monotonic()
        if (span := spans.current()) is not None:
            found[traceparent.HEADER] = span.traceparent
        if self._token:
            found["Authorization"] = f"Bearer {self._token}"
        return found

    def _read_token(self, path: str) -> str:
        """Return the token in a file, or the last one where there is none now; raises StatusError without either."""
        try:
            token = Path(path).read_text().strip()
            if token:
                return token
            why: Exception | str = "it is empty"
        except (OSError, UnicodeDecodeError) as error:
            why = error
        if not self._token:
            raise _unreachable(self.server, f"the token file {path}: {why}")
        log.warning("the token file %s cannot be read, the last token is used: %s", path, why)
        return self._token

    def _to(self, server: str) -> Connections:
        """Return the connections to a server. Raises StatusError if the client's own certificate cannot be read."""
        found = self._connections.get(server)
        if found is None:
            if self._closed:
                raise _unreachable(server, "the client is closed")
            try:
                found = self._connections[server] = Connections(server, self._access, self._agent)
            except OSError as error:
                raise _unreachable(server, error) from error
        if self._server_checks is None and self._several:
            self._server_checks = asyncio.create_task(
                Loops(self._clock).run("API servers", self._check_servers), name="API servers"
            )
        return found

    # -- which server ---------------------------------------------------------------------------------------------
    async def _fail_over(self, failed: Connections, why: BaseException | str) -> bool:
        """Go on to another server that is ready, unless these were left already; False if there is none."""
        async with self._choosing:
            if self._connections.get(self.server) is not failed:
                return True
            if self._clock.monotonic() - self._chosen < PAUSE_SECONDS:
                return False
            for server in self._servers.others():
                if await self._to(server).ready(known.ANSWER_SECONDS):
                    await self._use(server, f"{failed.server}: {_words(why)}")
                    return True
            self._chosen = self._clock.monotonic()
            return False

    async def _use(self, server: str, why: str) -> None:
        left = self._connections.pop(self.server, None)
        self._servers.use(server, why)
        if left is not None:
            await left.leave()

    async def _check_servers(self) -> None:
        """Leave a server that hangs and come back to the preferred one, until cancelled."""
        self._watched = self.server
        while True:
            if self.server != self._watched:
                self._watched = self.server
                self._return_at = self._clock.monotonic() + random.uniform(*known.RETURN_SECONDS)
            await self._clock.sleep(known.CHECK_SECONDS * random.uniform(0.8, 1.2))
            try:
                await self._check_server()
            except StatusError as error:
                log.warning("the health of the API servers cannot be checked: %s", error)

    async def _check_server(self) -> None:
        """Ask a server that nothing was heard of. Raises StatusError if the client's certificate cannot be read."""
        server, now = self.server, self._clock.monotonic()
        if not self._servers.others():
            return
        connections = self._to(server)
        if now - self._last_response > known.CHECK_SECONDS and not await connections.ready(known.ANSWER_SECONDS):
            await self._fail_over(connections, f"not ready within {known.ANSWER_SECONDS:g} s")
        elif server != self._servers.preferred and server == self._watched and now >= self._return_at:
            await self._return()
            self._return_at = now + random.uniform(*known.RETURN_SECONDS)

    async def _return(self) -> None:
        preferred = self._servers.preferred
        if await self._to(preferred).ready(known.ANSWER_SECONDS):
            async with self._choosing:
                await self._use(preferred, "it is ready again")

    async def reconnect(self) -> None:
        """Drop all connections, so that new ones are made with the certificate as its file now is."""
        old, self._connections = self._connections, {}
        for each in old.values():
            await each.leave()

    async def close(self) -> None:
        """Cancel pending requests, and refuse new ones: their connections would not be closed."""
        self._closed = True
        if self._server_checks is not None:
            self._server_checks.cancel()
            await asyncio.gather(self._server_checks, return_exceptions=True)
        while self._connections:
            await self._connections.popitem()[1].leave()


def _harmless(method: str, error: BaseException) -> bool:
    """True if the failed server cannot have executed the request, or if the request is idempotent."""
    return method == "GET" or isinstance(error, aiohttp.ClientConnectorError)


def _words(error: BaseException | str) -> str:
    if isinstance(cause := getattr(error, "certificate_error", None), NodesCertificate):
        return cause.verify_message
    return error if isinstance(error, str) else words(error)


def _unreachable(server: str, error: BaseException | str) -> Unreachable:
    return Unreachable(f"cannot reach the API server at {server}: {_words(error)}")
