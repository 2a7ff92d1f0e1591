"""The connections to one API server: pools for requests and for watches, that can be left at any moment.

A server that hangs keeps its side of every connection open, so nothing that waits there would end by itself, whether for
a TLS handshake, a free connection, an answer or the next event of a watch. `leave` ends each such wait with a TimeoutError.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from kube import bounded_answer, tls_buffers
from kube.counters import Counter, Histogram
from kube.http_connector import Connector
from kube.kubeconfig import Access
from kube.server_certificates import ServerCertificates
from kube.tls_files import TlsFiles

REQUESTS = 16
"""Requests under way at a time; watches are not counted. A TLS handshake costs both sides more than most requests do,
so a burst of requests waits for connections that are there instead of making as many as it is large. They wait in line:
the pool by itself gives a free connection to whoever asks first, which is the one that has just given it back. Requests that
must not wait for those have a pool of another size."""
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A watch only listens: without probes it would wait for ever for a server whose machine was switched off. Seconds, tries."""
NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""`_wait` limits the time of a response; a machine that is switched off does not answer a first packet."""
MOST_OF_AN_ERROR = 1 << 20
"""Bytes of an error that are read."""
SENT = Counter("rest_client_requests", "Requests sent to servers.", "code", "host", "method")
SECONDS = Histogram(
    "rest_client_request_duration_seconds",
    "Time that servers took to answer.",
    *("host", "verb"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
SOCKET_HEARTBEAT = 30.0
"""Seconds between pings of a WebSocket, whose other end may vanish without a word."""
SOCKETS = -1
"""Key of the connections of WebSockets, which have no limit."""
ERRORS = (TimeoutError, aiohttp.ClientError, OSError)
"""Errors of a failed connection."""


class AnswerTooLong(aiohttp.ClientPayloadError):
    """The body of an answer is longer than the limit of its request."""


class Connections:
    """Make and close it inside a running loop."""

    def __init__(self, server: str, access: Access, user_agent: str) -> None:
        self.server = server
        self._access, self._agent = access, user_agent
        self._certificates = ServerCertificates(server)
        self._tls: TlsFiles | None = None
        if server.startswith("https://"):
            tls_buffers.bound()
            self._tls = access.tls()
            self._tls.current()
        self._pools: dict[int, aiohttp.ClientSession] = {}
        self._request_slots: dict[int, asyncio.Semaphore] = {}
        self._waits: set[asyncio.Timeout] = set()
        self._left = False

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        seconds: float | None,
        places: int = REQUESTS,
        limit: int | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body; `seconds` count the wait for a free connection too. Raises ERRORS.

        `places` names the pool by its size: requests of one pool do not wait for those of another. `limit` is the maximum
        number of bytes of the body, which is requested uncompressed; for a longer one AnswerTooLong is raised.
        """
        start, code = time.perf_counter(), "<error>"
        url = self._url(path, query)
        if limit is not None:
            headers = {**headers, "Accept-Encoding": "identity"}
        try:
            async with self._wait(seconds), self._request_slots.setdefault(places, asyncio.Semaphore(places)):
                async with self._pool(places).request(
                    method,
                    url,
                    headers=headers,
                    data=body or None,
                    timeout=NO_LIMIT,
                    allow_redirects=False,
                    ssl=self._settings(),
                    server_hostname=self._access.server_name or None,
                ) as answer:
                    code = str(answer.status)
                    return answer.status, answer.headers, await _body(answer, limit)
        finally:
            host = f"{url.host}:{url.port}"
            SENT.add(code, host, method)
            SECONDS.observe(host, method, time.perf_counter() - start)

    async def ready(self, seconds: float) -> bool:
        """Ask the server whether it is ready, past the requests that are under way."""
        try:
            async with self._wait(seconds):
                async with self._pool(0).get(
                    self._url("/readyz", {}),
                    timeout=NO_LIMIT,
                    allow_redirects=False,
                    ssl=self._settings(),
                    server_hostname=self._access.server_name or None,
                ) as answer:
                    return answer.status == 200
        except ERRORS:
            return False

    async def open(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Begin a watch; the answer's head must come within a minute. Raises ERRORS."""
        async with self._wait(60):
            return await self._pool(0).get(
                self._url(path, query),
                headers=headers,
                timeout=NO_LIMIT,
                allow_redirects=False,
                ssl=self._settings(),
                server_hostname=self._access.server_name or None,
            )

    async def open_socket(
        self, path: str, headers: Mapping[str, str], subprotocol: str, most_bytes: int
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; `path` has its query. Its head must come within a minute. Raises ERRORS."""
        async with self._wait(60):
            return await self._pool(SOCKETS).ws_connect(
                URL(self.server + path, encoded=True),
                protocols=(subprotocol,),
                headers=headers,
                heartbeat=SOCKET_HEARTBEAT,
                max_msg_size=most_bytes,
                ssl=self._settings(),
                server_hostname=self._access.server_name or None,
            )

    async def error_body(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the body of an answer that is no watch, a part of it if it is long. Raises ERRORS."""
        async with self._wait(60):
            return await bounded_answer.beginning(answer, MOST_OF_AN_ERROR)

    async def chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Yield a watch's bytes as they come. Raises ERRORS."""
        while True:
            # Only the wait itself is within the scope: what the reader does between two reads is its own.
            async with self._wait(None):
                chunk = await answer.content.readany()
            if not chunk:
                return
            yield chunk

    async def leave(self) -> None:
        """End all that waits and close the connections."""
        self._left = True
        now = asyncio.get_running_loop().time()
        for wait in tuple(self._waits):
            with contextlib.suppress(RuntimeError):  # it is over already
                wait.reschedule(now)
        await asyncio.sleep(0)
        while self._pools:
            await self._pools.popitem()[1].close()

    @contextlib.asynccontextmanager
    async def _wait(self, seconds: float | None) -> AsyncIterator[None]:
        if self._left:
            raise TimeoutError("the server was left")
        async with asyncio.timeout(seconds) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    def _settings(self) -> ssl.SSLContext | bool:
        """Return the TLS settings as they are now: a pool gives out none of the connections that were made with others."""
        return self._tls.current() if self._tls is not None else True

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        return URL(self.server + path, encoded=True).update_query(query)

    def _pool(self, size: int) -> aiohttp.ClientSession:
        """Return the session with that many connections at most (0: no limit); within `_wait`, so that none is made late."""
        pool = self._pools.get(size)
        if pool is None:
            pool = self._pools[size] = aiohttp.ClientSession(
                connector=Connector(
                    check=self._certificates.check,
                    limit=max(size, 0),
                    keepalive_timeout=60,
                    socket_factory=_probing_socket,
                ),
                headers={"User-Agent": self._agent},
                auto_decompress=True,
                trace_configs=[_without_redirects()] if size == SOCKETS else None,
            )
        return pool


def _without_redirects() -> aiohttp.TraceConfig:
    """Return a setting of a session that makes each redirect an error: opening a WebSocket has no option for that."""

    async def refuse(
        session: aiohttp.ClientSession, context: object, found: aiohttp.TraceRequestRedirectParams
    ) -> None:
        answer = found.response
        raise aiohttp.WSServerHandshakeError(answer.request_info, answer.history, status=answer.status)

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


async def _body(answer: aiohttp.ClientResponse, limit: int | None) -> bytes:
    if limit is None:
        return await answer.read()
    try:
        return await bounded_answer.read(answer, limit)
    except ValueError as error:
        raise AnswerTooLong(str(error)) from error


def _probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
