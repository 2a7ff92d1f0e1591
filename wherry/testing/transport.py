"""Transport of HTTP clients into a cluster of this process, without a socket, TLS or HTTP.

It is a transport of httpx and of httpx2, for their blocking clients and those for asyncio, on any event loop and thread. A
request goes the same way as one from a socket, except that its user is given, unless it has a bearer token.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from control.assembly.api_server import ApiServer
from control.auth.authenticators import with_authenticated
from control.auth.user import Credentials, UserInfo
from control.http.exchange import Answer, Request, Response, Stream, error_response
from control.http.pieces import whole
from kube.errors import bad_request
from wherry.testing.errors import ClusterError
from wherry.testing.kubeconfig import ADMIN

T = TypeVar("T")
WAITING = 64
"""Chunks of a stream that wait for their reader."""


class Transport:
    """Transport of one user, in the administrator's groups if it is that and none are given. `api` runs on `loop`."""

    def __init__(
        self, api: ApiServer, loop: asyncio.AbstractEventLoop, user: str, groups: Sequence[str] | None = None
    ) -> None:
        self._api, self._loop = api, loop
        given = ADMIN.groups if groups is None and user == ADMIN.name else groups or ()
        self._user = with_authenticated(UserInfo(user, groups=tuple(given)))

    # -- the methods of httpx.BaseTransport and httpx.AsyncBaseTransport ------------------------------------------
    def handle_request(self, request: Any) -> Any:
        """Send a request of a blocking client. Raise ClusterError on the cluster's own event loop."""
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise ClusterError("a blocking client cannot be used on the cluster's event loop: use one for asyncio")
        body = request.read()
        return self._response(request, self.submit(self._answer(request, body)).result())

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of a client for asyncio."""
        body = await request.aread()
        return self._response(request, await asyncio.wrap_future(self.submit(self._answer(request, body))))

    def close(self) -> None:
        """Do nothing: there are no connections."""

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    # -- on the cluster's event loop ------------------------------------------------------------------------------
    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the cluster's event loop. Raise ClusterError if that has ended."""
        if self._loop.is_closed():
            work.close()
            raise ClusterError("the cluster has ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _answer(self, request: Any, body: bytes) -> Response | Reader:
        edge = self._api.serving.edge
        edge.exchanged += 1
        pairs = [(name.lower(), value) for name, value in request.headers.raw]
        headers = dict(reversed(pairs))

        async def read(limit: int) -> bytes:
            return body

        inner = Request(request.method, request.url.path, request.url.query, headers, read)
        inner.extensions["headers"] = pairs
        token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")[2].strip() or None
        answer: Answer = await self._api.pipeline.answer(
            inner, Credentials(token=token, headers=pairs), None if token else self._user
        )
        if isinstance(answer, Stream):
            return Reader(answer, edge)
        if isinstance(answer, Response):
            return answer
        return error_response(bad_request("a request inside the process cannot be upgraded: use the kubeconfig"))

    def _response(self, request: Any, answer: Response | Reader) -> Any:
        library = sys.modules[type(request).__module__.partition(".")[0]]
        found = answer.answer if isinstance(answer, Reader) else answer
        headers = [(b"content-type", found.content_type), *found.headers]
        if isinstance(answer, Reader):
            return library.Response(found.status, headers=headers, stream=_stream_class(library)(self, answer, request))
        return library.Response(found.status, headers=headers, content=whole(answer.body))


class Reader:
    """Reads a stream in a task of the cluster's event loop."""

    def __init__(self, answer: Stream, edge: Any) -> None:
        self.answer, self._edge = answer, edge
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING)
        self._failure: Exception | None = None
        self._task = asyncio.create_task(self._read(), name="stream of a transport")

    async def _read(self) -> None:
        try:
            async for chunk in self.answer.chunks:
                self._edge.exchanged += 1
                await self._chunks.put(chunk)
        except Exception as error:
            self._failure = error
        finally:
            close = getattr(self.answer.chunks, "aclose", None)
            if close is not None:
                await close()
        await self._chunks.put(None)

    async def next(self) -> bytes | None:
        """Return the next chunk, None at the end. Raise the error that ended the stream."""
        chunk = await self._chunks.get()
        if chunk is None and self._failure is not None:
            raise self._failure
        return chunk

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@functools.cache
def _stream_class(library: Any) -> Any:
    """Return the class of streams of httpx or httpx2."""

    class Chunks(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, transport: Transport, reader: Reader, request: Any) -> None:
            self._transport, self._reader, self._request = transport, reader, request
            self._limit: float | None = (request.extensions.get("timeout") or {}).get("read")

        def __iter__(self) -> Iterator[bytes]:
            while True:
                with self._errors():
                    future = self._transport.submit(self._reader.next())
                    try:
                        chunk = future.result(self._limit)
                    finally:
                        future.cancel()
                if chunk is None:
                    return
                yield chunk

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                with self._errors():
                    future = self._transport.submit(self._reader.next())
                    chunk = await asyncio.wait_for(asyncio.wrap_future(future), self._limit)
                if chunk is None:
                    return
                yield chunk

        @contextlib.contextmanager
        def _errors(self) -> Iterator[None]:
            try:
                yield
            except TimeoutError as error:
                raise library.ReadTimeout("the read operation timed out", request=self._request) from error
            except concurrent.futures.CancelledError as error:
                raise library.RemoteProtocolError("the cluster has ended", request=self._request) from error

        def close(self) -> None:
            with contextlib.suppress(ClusterError):
                self._transport.submit(self._reader.close()).result()

        async def aclose(self) -> None:
            with contextlib.suppress(ClusterError):
                await asyncio.wrap_future(self._transport.submit(self._reader.close()))

    return Chunks
