"""exec and attach over a WebSocket, translated into the runtime's SPDY streams.

The runtime's server expects one SPDY stream for each of error, stdin, stdout, stderr and resize that was requested, named in
its headers; every WebSocket channel becomes one of them. Frames are passed on in the order they come, so the output is complete
before the status, and the status is the last thing before the connection closes.
"""

import asyncio
import json
from dataclasses import dataclass

from agent.streaming import channels, spdy
from agent.streaming.channels import ChannelProtocol, MessageDecoder
from agent.streaming.directions import run_until_first_ends
from agent.streaming.upgrade import Dial, Stream
from agent.streaming.websocket import NORMAL, WebSocket
from kube.serving.frames import SPDY_CHUNK, FrameCounter

# An attach that ended without a word sooner than this (in seconds) came too late: the container was just ending.
_TOO_LATE = 1.0

# What the runtime may choose from; all that it answers with a Status object will do.
_SPDY_PROTOCOL = "v4.channel.k8s.io"

UPGRADE_HEADERS = [
    ("Connection", "Upgrade"),
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", _SPDY_PROTOCOL),
    ("Content-Length", "0"),
]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The streams that the client requested."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def channels(self) -> list[int]:
        """List the channels to open, the status first."""
        wanted = [channels.ERROR]
        wanted += [channels.STDIN] if self.stdin else []
        wanted += [channels.STDOUT] if self.stdout else []
        wanted += [channels.STDERR] if self.stderr and not self.tty else []
        wanted += [channels.RESIZE] if self.tty else []
        return wanted


async def connect(dial: Dial) -> Stream:
    """Open the runtime's end of a session. Raise UpgradeError or OSError."""
    stream, _ = await dial("POST", UPGRADE_HEADERS)
    return stream


async def translate(
    socket: WebSocket, protocol: ChannelProtocol, backend: Stream, options: StreamOptions, *, too_late: str = ""
) -> None:
    """Run a session to its end; closes both connections.

    `too_late`: the error of a session that the runtime ends at once and without output. A container that prints something and
    exits may do so before an attach is effective; kubectl then shows the log, but only if the attach failed.
    """
    session = _Session(socket, protocol, backend, options, too_late)
    try:
        await session.run()
    finally:
        try:
            await backend.close()
        finally:
            await socket.close(NORMAL)


class _Session:
    def __init__(
        self,
        socket: WebSocket,
        protocol: ChannelProtocol,
        backend: Stream,
        options: StreamOptions,
        too_late: str,
    ) -> None:
        self._too_late = too_late
        self._silent = True
        self._socket = socket
        self._protocol = protocol
        self._backend = backend
        self._options = options
        self._spdy = spdy.Connection()
        self._streams: dict[int, int] = {}  # channel -> stream
        self._channels: dict[int, int] = {}  # stream -> channel
        self._status = b""

    async def run(self) -> None:
        for channel in self._options.channels():
            stream = self._spdy.open_stream({"streamtype": channels.STREAM_NAMES[channel]})
            self._streams[channel], self._channels[stream] = stream, channel
        await self._flush()
        if not self._protocol.half_close:
            # An empty message means that the session is open. The clients that speak v5 neither wait
            # for it nor are ready for it: kubectl would complain of an "Unknown stream id 1".
            readable = [c for c in (channels.STDOUT, channels.STDERR) if c in self._streams] or [channels.ERROR]
            await self._socket.send(self._protocol.encode(readable[0], b""), text=self._protocol.text)
        await run_until_first_ends(runtime_to_client=self._to_client(), client_to_runtime=self._to_runtime())

    async def _to_client(self) -> None:
        """Pass output on until the runtime closes the connection; then send the status."""
        began, frames = asyncio.get_running_loop().time(), FrameCounter(self._socket.session_yield)
        try:
            while data := await self._backend.reader.read(SPDY_CHUNK):
                for event in self._spdy.receive(data):
                    await frames.count()
                    await self._pass_on(event)
                await self._flush()
        except spdy.SPDYError as error:
            self._status = self._status or failure(str(error))
        except OSError as error:
            self._status = self._status or failure(f"connection to the container runtime lost: {error}")
        if self._too_late and self._silent and asyncio.get_running_loop().time() - began < _TOO_LATE:
            self._status = failure(self._too_late)
        if self._status:
            await self._send(channels.ERROR, self._protocol.encode_status(self._status))

    async def _pass_on(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.Data) and event.data:
            channel = self._channels.get(event.stream_id)
            if channel == channels.ERROR:
                self._status += event.data
            elif channel in (channels.STDOUT, channels.STDERR):
                self._silent = False
                await self._send(channel, event.data)
        elif isinstance(event, spdy.Reset) and self._channels.get(event.stream_id) == channels.ERROR:
            self._status = self._status or failure("the container runtime refused the session")

    async def _send(self, channel: int, data: bytes) -> None:
        try:
            await self._socket.send(self._protocol.encode(channel, data), text=self._protocol.text)
        except OSError:
            return  # the client is gone; the other direction notices and ends the session

    async def _to_runtime(self) -> None:
        """Pass input and terminal sizes on until the client goes."""
        decoder = MessageDecoder(self._protocol)
        while (fragment := await self._socket.receive()) is not None:
            try:
                channel, data = decoder.decode(fragment)
            except ValueError:
                continue
            if channel == channels.CLOSE and self._protocol.half_close:
                if data == bytes((channels.STDIN,)) and channels.STDIN in self._streams:
                    self._spdy.send(self._streams[channels.STDIN], b"", fin=True)
                    del self._streams[channels.STDIN]
            elif channel in (channels.STDIN, channels.RESIZE) and channel in self._streams and data:
                self._spdy.send(self._streams[channel], data)
            try:
                await self._flush()
            except OSError:
                await asyncio.Event().wait()  # the runtime is gone; its last frames are still being passed on
                return

    async def _flush(self) -> None:
        if data := self._spdy.take():
            self._backend.writer.write(data)
            await self._backend.writer.drain()


def failure(message: str, reason: str = "InternalError", code: int = 500) -> bytes:
    """Return a Status object for a failed session."""
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return json.dumps(status).encode()
