"""Connections inside this process: pairs of sockets, with asyncio's streams or binary files at an end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from agent.streaming.upgrade import Stream

LIMIT = 256 << 10
"""Bytes that a stream reads ahead, twice."""
CHUNK = 64 << 10


async def stream_of(end: socket.socket) -> Stream:
    """Return asyncio's streams of one end."""
    return Stream(*await asyncio.open_connection(sock=end, limit=LIMIT))


async def in_thread(function: Callable[[], Any], name: str) -> Any:
    """Call a function that may block for long in a new thread, which continues if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)

    def call() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:
            error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised
        with contextlib.suppress(RuntimeError):  # the event loop may have ended
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=call, name=name, daemon=True).start()
    return await result


async def copy(read: Callable[[], Awaitable[bytes]], writer: asyncio.StreamWriter) -> None:
    """Write all that is read, and its end."""
    with contextlib.suppress(OSError):
        while data := await read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()
