"""port-forward at the pod's end: each pair of SPDY streams is a connection to the handler of a port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

from agent.streaming.upgrade import Stream
from wherry.testing.kubelet.pairs import CHUNK, LIMIT, copy, in_thread, stream_of
from wherry.testing.kubelet.spdy_server import ServerConnection, ServerStream
from wherry.testing.kubelet.tasks import Tasks
from wherry.testing.nodes.handlers import PortHandler, is_coroutine_function

log = logging.getLogger(__name__)
Find = Callable[[int], PortHandler | None]
"""Returns the handler of a port."""


class PortForward:
    """One session; its client opens two streams for each connection, named by the same request ID."""

    def __init__(self, stream: Stream, pod: str, find: Find) -> None:
        self._pod, self._find = pod, find
        self._connection = ServerConnection(stream, self._opened)
        self._errors: dict[str, ServerStream] = {}
        self._data: dict[str, ServerStream] = {}
        self._tasks = Tasks()

    async def serve(self) -> None:
        """Serve connections until the client leaves."""
        try:
            await self._connection.receive()
        finally:
            await self._tasks.close()
            await self._connection.close()

    def _opened(self, stream: ServerStream) -> None:
        request = stream.headers.get("requestid", stream.headers.get("port", ""))
        streams = self._errors if stream.headers.get("streamtype") == "error" else self._data
        streams[request] = stream
        if request in self._errors and request in self._data:
            forward = self._forward(self._data.pop(request), self._errors.pop(request))
            self._tasks.start(forward, "forwarded port")

    async def _forward(self, data: ServerStream, error: ServerStream) -> None:
        text = data.headers.get("port", "")
        port = int(text) if text.isascii() and text.isdigit() else 0
        problem = ""
        try:
            handler = self._find(port)
            if handler is None:
                add = f'cluster.pods.on_port("{self._pod}", {port}, handler)'
                problem = f"no handler for connections (add one with {add})"
            else:
                await self._connected(handler, data)
        except OSError as failed:
            problem = str(failed)
        finally:
            await data.end()
            await error.end(f"error forwarding port {text} to pod {self._pod}: {problem}".encode() if problem else b"")

    async def _connected(self, handler: PortHandler, data: ServerStream) -> None:
        if isinstance(handler, tuple):
            stream = Stream(*await asyncio.open_connection(*handler, limit=LIMIT))
        else:
            ours, theirs = socket.socketpair()
            stream = await stream_of(ours)
            self._tasks.start(call(handler, theirs), f"handler of a port of {self._pod}")
        to_handler = asyncio.create_task(copy(data.read, stream.writer), name="to a port's handler")
        try:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while received := await stream.reader.read(CHUNK):
                    await data.write(received)
        finally:
            to_handler.cancel()
            await asyncio.gather(to_handler, return_exceptions=True)
            stream.writer.transport.abort()


async def call(handler: Any, end: socket.socket) -> None:
    """Call a port's handler with one end of a connection, which is closed after it."""
    if not is_coroutine_function(handler):

        def in_its_thread() -> None:
            with end, end.makefile("rb") as reader, end.makefile("wb", buffering=0) as writer:
                handler(reader, writer)

        await in_thread(in_its_thread, "handler of a port")
        return
    stream = await stream_of(end)
    try:
        await handler(stream.reader, stream.writer)
    finally:
        await stream.close()
