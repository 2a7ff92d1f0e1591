"""exec and attach at the container's end: the streams of a session, and its final status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from agent.streaming import channels
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Stream
from wherry.testing.kubelet.spdy_server import ServerConnection, ServerStream

OPEN_SECONDS = 30.0
"""Time that a client has to open all streams, as upstream."""
SUCCESS = b'{"metadata":{},"status":"Success"}'


class CommandStreams:
    """The streams of one session, as far as the client requested them."""

    def __init__(self, options: StreamOptions) -> None:
        self.tty = options.tty
        self._missing = {channels.STREAM_NAMES[channel] for channel in options.channels()}
        self._streams: dict[str, ServerStream] = {}
        self.complete = asyncio.Event()

    def opened(self, stream: ServerStream) -> None:
        """Add a stream that the client has opened."""
        name = stream.headers.get("streamtype", "")
        self._streams[name] = stream
        self._missing.discard(name)
        if not self._missing:
            self.complete.set()

    @property
    def stdin(self) -> ServerStream | None:
        return self._streams.get("stdin")

    async def write(self, name: str, data: str | bytes) -> None:
        """Send output; a terminal has one stream for both outputs, and its lines end with CR LF."""
        raw = data.encode() if isinstance(data, str) else data
        if self.tty:
            name, raw = "stdout", raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        if (stream := self._streams.get(name)) is not None:
            await stream.write(raw)

    async def finish(self, status: bytes) -> None:
        """End the outputs, and send the status."""
        for name in ("stdout", "stderr"):
            if (stream := self._streams.get(name)) is not None:
                await stream.end()
        if (error := self._streams.get("error")) is not None:
            await error.end(status)


Run = Callable[[CommandStreams], Awaitable[bytes]]
"""Does the work of a session, and returns its status."""


async def serve(stream: Stream, options: StreamOptions, run: Run) -> None:
    """Serve one session on a connection, until it is done or the client leaves."""
    streams = CommandStreams(options)
    connection = ServerConnection(stream, streams.opened)
    receiving = asyncio.create_task(connection.receive(), name="input of a session")
    running = asyncio.create_task(_run(streams, run), name="session with a simulated container")
    try:
        await asyncio.wait((receiving, running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (receiving, running):
            task.cancel()
        await asyncio.gather(receiving, running, return_exceptions=True)
        await connection.close()


async def _run(streams: CommandStreams, run: Run) -> None:
    async with asyncio.timeout(OPEN_SECONDS):
        await streams.complete.wait()
    await streams.finish(await run(streams))


def exit_status(command: Sequence[str], exit_code: int) -> bytes:
    """Return the status of a command that has ended."""
    if exit_code == 0:
        return SUCCESS
    text = f"error executing command [{' '.join(command)}], exit code {exit_code}"
    status = {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {text}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }
    return json.dumps(status).encode()
