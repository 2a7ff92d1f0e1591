"""/containerLogs: streams a container's log for `kubectl logs`, of a file (log_file_source.py) or another source.

An error can be reported only before the first byte, so the first chunk is read before the response begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from agent.interfaces import PodLookup
from agent.runtime_records import ContainerRecord
from agent.server import log_request
from agent.server.log_lines import LogOptions
from agent.server.protocol import allow_slow_reading
from agent.server.session_slots import SessionSlots, TooManySessions
from kube.clock import Clock
from kube.serialize import readable


class LogSource(Protocol):
    """Reads the logs of containers."""

    def read(self, namespace: str, record: ContainerRecord, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yield a log in pieces; with `follow`, until the container has ended. Raise OSError or ValueError before the first."""
        ...


class ContainerLogs:
    """The logs of this node's containers."""

    def __init__(self, pods: PodLookup, source: LogSource, clock: Clock) -> None:
        self._pods, self._source, self._clock = pods, source, clock
        self.slots = SessionSlots.of_logs()

    async def read(self, request: Request) -> Response:
        """Send the requested part of a container's log; with `follow`, until the container terminates."""
        path = request.path_params
        allow_slow_reading(request.scope, path["namespace"])
        try:
            options = log_request.options(request.query_params, self._clock.now())
            view = self._pods.view(path["namespace"], path["pod"])
            record = log_request.instance(view, path["pod"], path["container"], previous=options.previous)
        except log_request.LogRequestError as error:
            return PlainTextResponse(str(error), error.status)
        pieces = self._source.read(path["namespace"], record, options)
        return _LogResponse(pieces, self.slots, path["namespace"])


class _LogResponse(Response):
    """A log that is streamed while it holds a slot; what fails before the first piece is still an error response."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], slots: SessionSlots, namespace: str) -> None:
        self._pieces, self._slots, self._namespace = pieces, slots, namespace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._slots.slot(self._namespace):
                async with aclosing(self._pieces):
                    response = await self._begun(receive)
                    await response(scope, receive, send)
        except TooManySessions as error:
            await PlainTextResponse(str(error), 429)(scope, receive, send)

    async def _begun(self, receive: Receive) -> Response:
        try:
            first = await self._first(receive)
        except (OSError, ValueError) as error:
            return PlainTextResponse(readable(f"failed to open log file: {error}"), 500)
        if first is None:
            return PlainTextResponse("")

        async def all_pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in self._pieces:
                yield piece

        return StreamingResponse(all_pieces(), media_type="text/plain")

    async def _first(self, receive: Receive) -> bytes | None:
        """Return the first piece, None without one or if the client disconnects before."""
        first = asyncio.ensure_future(anext(self._pieces, None))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((first, gone), return_when=asyncio.FIRST_COMPLETED)
            return await first if first.done() else None
        finally:
            first.cancel()
            gone.cancel()
            await asyncio.wait((first, gone))


async def _disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
