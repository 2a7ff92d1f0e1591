"""Port forwarding over a WebSocket, in its two forms.

kubectl since 1.31 tunnels its SPDY connection whole: the messages' bytes are the bytes of the SPDY connection, and the
runtime's server is the other end of it. Older clients (and the Python client) send two channels a port, data and error, of
which the first message is the port's number; those become one pair of SPDY streams a port.
"""

import contextlib
import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeGuard

from agent.streaming import spdy
from agent.streaming.channels import ChannelProtocol, MessageDecoder
from agent.streaming.directions import run_until_first_ends
from agent.streaming.upgrade import Dial, Stream
from agent.streaming.websocket import NORMAL, WebSocket
from kube.serving.frames import SPDY_CHUNK, FrameCounter

TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
SPDY_PROTOCOL = "portforward.k8s.io"

MOST_PORTS = 128
"""Ports of one session: each takes two channels, and a channel's number is one byte."""

_CHUNK = 32 << 10

_PortStreams = Callable[[], Coroutine[None, None, None]]


def read_ports(values: Iterable[str]) -> list[int]:
    """Read the ports of a request's parameters, several of them with commas between. Raise ValueError."""
    texts = [text for value in values for text in value.split(",") if text]
    if len(texts) > MOST_PORTS:
        raise ValueError(f"too many ports: {len(texts)}, at most {MOST_PORTS} can be forwarded in one session")
    try:
        ports = [int(text) for text in texts]
    except ValueError as error:
        raise ValueError(f"unable to parse {','.join(texts)!r} as ports") from error
    if any(not 0 < port < 65536 for port in ports):
        raise ValueError(f"port out of range in {ports}")
    return ports


async def connect(dial: Dial) -> Stream:
    """Open the runtime's end of a port forwarding. Raise UpgradeError or OSError."""
    stream, _ = await dial(
        "POST",
        [
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", SPDY_PROTOCOL),
            ("Content-Length", "0"),
        ],
    )
    return stream


async def tunnel(socket: WebSocket, backend: Stream) -> None:
    """Carry the client's SPDY connection to the runtime; closes both connections."""

    async def to_client() -> None:
        with contextlib.suppress(OSError):
            while data := await backend.reader.read(_CHUNK):
                await socket.send(data)

    async def to_runtime() -> None:
        with contextlib.suppress(OSError):
            while (fragment := await socket.receive()) is not None:
                backend.writer.write(fragment.data)
                await backend.writer.drain()

    await _either(to_client, to_runtime, socket, backend)


async def forward(socket: WebSocket, protocol: ChannelProtocol, backend: Stream, ports: Sequence[int]) -> None:
    """Carry two channels a port to the runtime's streams; closes both connections."""
    connection = spdy.Connection()
    channel_of: dict[int, int] = {}
    data_streams: dict[int, int] = {}
    for index, port in enumerate(ports):
        for offset, kind in ((1, "error"), (0, "data")):
            headers = {"streamtype": kind, "port": str(port), "requestid": str(index)}
            stream = connection.open_stream(headers)
            channel_of[stream] = 2 * index + offset
            if kind == "data":
                data_streams[2 * index] = stream
            else:
                connection.send(stream, b"", fin=True)

    async def flush() -> None:
        if data := connection.take():
            backend.writer.write(data)
            await backend.writer.drain()

    async def to_client() -> None:
        # A client knows by the connection's end that its port has ended: the channels have no end of their own. Upstream
        # (cri-streaming, portforward/websocket.go) closes it when the runtime has ended the streams of all ports.
        frames, unfinished = FrameCounter(socket.session_yield), set(channel_of)
        with contextlib.suppress(OSError, spdy.SPDYError):
            while unfinished and (data := await backend.reader.read(SPDY_CHUNK)):
                for event in connection.receive(data):
                    await frames.count()
                    if isinstance(event, spdy.Data) and event.data and event.stream_id in channel_of:
                        await socket.send(protocol.encode(channel_of[event.stream_id], event.data), text=protocol.text)
                    if _ends(event):
                        unfinished.discard(event.stream_id)
                await flush()

    async def to_runtime() -> None:
        decoder = MessageDecoder(protocol)
        with contextlib.suppress(OSError):
            while (fragment := await socket.receive()) is not None:
                with contextlib.suppress(ValueError):
                    channel, data = decoder.decode(fragment)
                    if channel in data_streams and data:
                        connection.send(data_streams[channel], data)
                await flush()

    try:
        # Each channel's first message is its port, by which the client distinguishes them.
        for channel in range(2 * len(ports)):
            await socket.send(protocol.encode(channel, struct.pack("<H", ports[channel // 2])), text=protocol.text)
        await flush()
    except BaseException:
        await _close(backend, socket)
        raise
    await _either(to_client, to_runtime, socket, backend)


def _ends(event: spdy.Event) -> TypeGuard[spdy.StreamAccepted | spdy.Data | spdy.Reset]:
    """Return whether the runtime sends no more on the event's stream."""
    return isinstance(event, spdy.Reset) or (isinstance(event, spdy.StreamAccepted | spdy.Data) and event.fin)


async def _either(to_client: _PortStreams, to_runtime: _PortStreams, socket: WebSocket, backend: Stream) -> None:
    try:
        await run_until_first_ends(runtime_to_client=to_client(), client_to_runtime=to_runtime())
    finally:
        await _close(backend, socket)


async def _close(backend: Stream, socket: WebSocket) -> None:
    try:
        await backend.close()
    finally:
        await socket.close(NORMAL)
