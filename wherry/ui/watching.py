"""Several watches in one answer: a browser has six connections to a server, and the page watches more kinds.

Each line of the answer is a JSON object with the number of the watch: {"w": 0, "event": ...} with an event of the API server,
or at the end {"w": 0, "error": ...} or {"w": 0, "end": true}. The answer ends with the first watch that ends; the page then
requests all of them again from the resource versions that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.requests import Request

from kube.client import Client, lines
from kube.errors import StatusError
from wherry.ui import paths
from wherry.ui.failures import of_server
from wherry.ui.places import Places
from wherry.ui.streaming import Streamed

STREAMS = 16
"""Answers at a time, of all tabs."""
MOST_WATCHES = 12
"""Watches of one answer."""
WAITING_LINES = 256
"""Lines that wait for the browser to read; the watches wait for it too then."""
CHUNK_BYTES = 256 << 10

Watch = tuple[str, dict[str, str]]


class Watching:
    """Watches with one client."""

    def __init__(self, client: Client, stop: asyncio.Event) -> None:
        self._client, self._streams, self._stop = client, Places(STREAMS, "watches"), stop

    def answer(self, request: Request) -> Streamed:
        """Return the answer to a request with parameters `w`, each the path and query of a collection. Raise StatusError."""
        wanted = [watch(text) for text in request.query_params.getlist("w")]
        if not 0 < len(wanted) <= MOST_WATCHES:
            raise StatusError(400, "BadRequest", f"watch 1 to {MOST_WATCHES} collections, not {len(wanted)}")
        return Streamed(self._opened(wanted), "application/json-seq", self._stop)

    @contextlib.asynccontextmanager
    async def _opened(self, wanted: Sequence[Watch]) -> AsyncIterator[AsyncIterator[bytes]]:
        with self._streams.one():
            queue: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_LINES)
            tasks = [
                asyncio.create_task(self._follow(number, each, queue), name=f"watch {each[0]}")
                for number, each in enumerate(wanted)
            ]
            try:
                yield _chunks(queue)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, number: int, wanted: Watch, queue: asyncio.Queue[bytes | None]) -> None:
        path, query = wanted
        query = {**query, "watch": "true", "allowWatchBookmarks": "true"}
        prefix = b'{"w":%d,' % number
        last = prefix + b'"end":true}\n'
        try:
            async with self._client.transport.stream(path, query=query) as chunks:
                async for line in lines(chunks):
                    await queue.put(prefix + b'"event":' + line + b"}\n")
        except StatusError as error:
            shown = of_server(error)
            data = {"code": shown.code, "reason": shown.reason, "message": shown.message}
            last = prefix + b'"error":' + msgspec.json.encode(data) + b"}\n"
        await queue.put(last)
        await queue.put(None)


def watch(text: str) -> Watch:
    """Return the path and the query of a parameter. Raise StatusError if the page may not watch it."""
    try:
        parts = urlsplit(text)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise StatusError(400, "BadRequest", "a parameter w is no path") from error
    target = paths.parse(parts.path)
    if parts.scheme or parts.netloc or not target.collection:
        raise StatusError(400, "BadRequest", "only collections can be watched")
    return target.path, paths.query(target, pairs)


async def _chunks(queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    """Yield the lines that are there, several at a time, until one of the watches has ended."""
    while True:
        line = await queue.get()
        parts: list[bytes] = []
        size = 0
        while line is not None:
            parts.append(line)
            size += len(line)
            if size > CHUNK_BYTES or queue.empty():
                break
            line = queue.get_nowait()
        if parts:
            yield b"".join(parts)
        if line is None:
            return
