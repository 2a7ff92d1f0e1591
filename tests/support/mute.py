"""A socket in front of a runtime's that can fall silent: it accepts connections and bytes, and no answer comes.

So a runtime looks whose process is stopped or deadlocked. What was sent meanwhile arrives when it speaks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

_CHUNK = 65536


class MutableRuntime:
    """`endpoint` is where agents connect."""

    def __init__(self, path: Path, runtime: str) -> None:
        self.endpoint, self._path, self._runtime = f"unix://{path}", path, runtime.removeprefix("unix://")
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._links: set[asyncio.Task[None]] = set()

    def fall_silent(self) -> None:
        self._speaking.clear()

    def speak(self) -> None:
        self._speaking.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            await self._speaking.wait()
            far_reader, far_writer = await asyncio.open_unix_connection(self._runtime)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, far_writer))
                group.create_task(self._pass_on(far_reader, writer))
        except* OSError:
            pass  # one end is gone, and so is the other then
        finally:
            self._links.discard(task)
            writer.close()

    async def _pass_on(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(_CHUNK):
                await self._speaking.wait()
                to.write(data)
                await to.drain()
        finally:
            to.close()

    async def close(self) -> None:
        for task in list(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)


@contextlib.asynccontextmanager
async def mutable(path: Path, runtime: str) -> AsyncIterator[MutableRuntime]:
    """Serve a socket at `path` in front of the runtime at an endpoint."""
    made = MutableRuntime(path, runtime)
    server = await asyncio.start_unix_server(made.serve, path)
    try:
        yield made
    finally:
        server.close()
        await made.close()
