"""An answer that is sent as its parts come, and ends with its client: the connection that it reads from is closed at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from starlette.types import Receive, Scope, Send

from kube.errors import StatusError
from wherry.ui import failures

Chunks = AbstractAsyncContextManager[AsyncIterator[bytes]]


class Streamed:
    """An ASGI application for one request, which ends with its client or with the server, when `stop` is set.

    A StatusError on entry of `chunks` is the answer. `last` is sent at the end of the server.
    """

    def __init__(self, chunks: Chunks, media_type: str, stop: asyncio.Event, last: bytes = b"") -> None:
        self._chunks, self._media_type, self._stop, self._last = chunks, media_type, stop, last
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._send(scope, receive, send), name="streamed answer")
        ends = {
            asyncio.create_task(_until_disconnected(receive), name="client of a streamed answer"),
            asyncio.create_task(self._stop.wait(), name="end of a streamed answer"),
        }
        try:
            await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, *ends):
                task.cancel()
            await asyncio.gather(work, *ends, return_exceptions=True)
        if not work.cancelled():
            work.result()
        elif self._begun:
            await _end(send, self._last if self._stop.is_set() else b"")
        elif self._stop.is_set():
            await failures.answer(StatusError(503, "ServiceUnavailable", "the page ends"))(scope, receive, send)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._chunks as chunks:
                headers = [(b"content-type", self._media_type.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                self._begun = True
                # The browser resolves a request with the first bytes of the body or its end.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except StatusError as error:
            if not self._begun:
                await failures.answer(error)(scope, receive, send)
                return
        await _end(send)


async def _end(send: Send, last: bytes = b"") -> None:
    await send({"type": "http.response.body", "body": last, "more_body": False})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
