"""HTTPS to an API server: one pooled aiohttp session, client certificate or bearer token.

The token may be a file that somebody rotates; it is read again at most once a minute, as client-go does.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
from yarl import URL

from kube.client import Response, error_of
from kube.errors import StatusError
from kube.kubeconfig import Access

TOKEN_LIFE = 60.0
"""Seconds that a token read from a file is used."""
CONNECTIONS = 16
"""Requests under way at a time; watches are not counted. A TLS handshake costs both sides more than most requests do,
so a burst of requests waits for connections that are there instead of making as many as it is large."""
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A watch only listens: without probes it would wait for ever for a server whose machine was switched off. Seconds, tries."""


class HttpsTransport:
    """A `Transport` to the server that an `Access` names. Make and close it inside a running loop."""

    def __init__(self, access: Access, user_agent: str = "wherry") -> None:
        self._access = access
        self._agent = user_agent
        self._token = access.token
        self._token_read = float("-inf")
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    @property
    def server(self) -> str:
        return self._access.server

    def _open(self, connections: int) -> aiohttp.ClientSession:
        """Return the session with that many connections at most (0: no limit)."""
        session = self._sessions.get(connections)
        if session is None:
            context: ssl.SSLContext | bool = True
            if self._access.server.startswith("https://"):
                context = self._access.ssl_context()
            session = self._sessions[connections] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=context, limit=connections, keepalive_timeout=60, socket_factory=_probing_socket
                ),
                headers={"User-Agent": self._agent},
                auto_decompress=True,
            )
        return session

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        found = dict(headers or {})
        if self._access.token_file and time.monotonic() - self._token_read > TOKEN_LIFE:
            self._token = Path(self._access.token_file).read_text().strip()
            self._token_read = time.monotonic()
        if self._token:
            found["Authorization"] = f"Bearer {self._token}"
        return found

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
    ) -> Response:
        url = URL(self._access.server + path, encoded=True).update_query(query or {})
        try:
            async with self._open(CONNECTIONS).request(
                method,
                url,
                headers=self._headers(headers),
                data=body or None,
                timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,
            ) as answer:
                return Response(answer.status, answer.headers, await answer.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _unreachable(self.server, error) from error

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        url = URL(self._access.server + path, encoded=True).update_query(query or {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        headers = self._headers({"Accept": "application/json"})
        try:
            answer = await self._open(0).get(url, headers=headers, timeout=timeout, allow_redirects=False)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _unreachable(self.server, error) from error
        try:
            if answer.status != 200:
                raise error_of(answer.status, await answer.read())
            yield _chunks(answer, self.server)
        finally:
            answer.close()

    async def reconnect(self) -> None:
        """Drop all connections, so that new ones are made with the certificate as its file now is."""
        old, self._sessions = self._sessions, {}
        for session in old.values():
            await session.close()

    async def close(self) -> None:
        while self._sessions:
            await self._sessions.popitem()[1].close()


def _probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def _chunks(answer: aiohttp.ClientResponse, server: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError) as error:
        raise _unreachable(server, error) from error


def _unreachable(server: str, error: BaseException) -> StatusError:
    why = str(error) or type(error).__name__
    return StatusError(503, "ServiceUnavailable", f"cannot reach the API server at {server}: {why}")
