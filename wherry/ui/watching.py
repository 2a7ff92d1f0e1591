"""Several watches in one answer: a browser has six connections to a server, and the page watches more kinds.

Each line of the answer is a JSON object with the number of the watch: {"w": 0, "event": ...} with an event of the API server,
or at the end {"w": 0, "error": ...} or {"w": 0, "end": true}. The last line of a server that ends is {"ended": true}. The
answer ends with the first watch that ends; the page then requests all of them again from the resource versions that it has.
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
MOST_BYTES = 8 << 20
"""Bytes of a line: no object is as large."""
WAITING_BYTES = 2 << 20
"""Bytes of lines that wait for the browser to read, beyond which the watches wait for it too."""

ENDED = b'{"ended":true}\n'
"""Last line of all answers when the command ends: whoever has the address later is not this server."""
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
        return Streamed(self._opened(wanted), "application/json-seq", self._stop, ENDED)

    @contextlib.asynccontextmanager
    async def _opened(self, wanted: Sequence[Watch]) -> AsyncIterator[AsyncIterator[bytes]]:
        with self._streams.one():
            waiting = Lines()
            tasks = [
                asyncio.create_task(self._follow(number, each, waiting), name=f"watch {each[0]}")
                for number, each in enumerate(wanted)
            ]
            try:
                yield waiting.chunks()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, number: int, wanted: Watch, waiting: Lines) -> None:
        path, query = wanted
        query = {**query, "watch": "true", "allowWatchBookmarks": "true"}
        prefix = b'{"w":%d,' % number
        last = prefix + b'"end":true}\n'
        try:
            async with self._client.transport.stream(path, query=query) as chunks:
                async for line in lines(chunks, MOST_BYTES):
                    await waiting.put(prefix + b'"event":' + line + b"}\n")
        except StatusError as error:
            shown = of_server(error)
            data = {"code": shown.code, "reason": shown.reason, "message": shown.message}
            last = prefix + b'"error":' + msgspec.json.encode(data) + b"}\n"
        await waiting.put(last)
        await waiting.end()


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


class Lines:
    """Lines of several watches that wait for the browser to read them, of a limited size together."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._bytes, self._ended = 0, False
        self._changed = asyncio.Condition()

    async def put(self, line: bytes) -> None:
        """Add a line, when there is room for it; after the end it is dropped."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._waiting or self._bytes + len(line) <= WAITING_BYTES)
            if not self._ended:
                self._waiting.append(line)
                self._bytes += len(line)
                self._changed.notify_all()

    async def end(self) -> None:
        """End after the lines that wait."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the lines that there are, several at a time, until the end."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._waiting) or self._ended)
                if not self._waiting:
                    return
                found = b"".join(self._waiting)
                self._waiting.clear()
                self._bytes = 0
                self._changed.notify_all()
            yield found
