"""Frames of WebSocket clients: many small ones, fragments of one message, pings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from agent.streaming import websocket
from agent.streaming.upgrade import Stream
from kube.serving.websocket import offered
from tests.support.cost import Case
from tests.support.cost_cases.inputs import HEAD, OBJECT, cases, fill

_HANDSHAKE = [
    ("host", "node"),
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
]
_TEXT, _BINARY, _MORE, _PING, _PONG, _LAST = 1, 2, 0, 9, 10, 0x80


def frame(first: int, payload: bytes = b"") -> bytes:
    """Return a frame as clients send it, masked with zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xff" + len(payload).to_bytes(8, "big")
    return bytes([first]) + size + bytes(4) + payload


FRAMES: dict[str, Callable[[int], bytes]] = {
    "messages of a byte": fill(frame(_LAST | _BINARY, b"a")),
    "empty messages": fill(frame(_LAST | _BINARY)),
    "fragments of a byte": lambda size: frame(_BINARY) + frame(_MORE, b"a") * (size // 7),
    "empty fragments": lambda size: frame(_BINARY) + frame(_MORE) * (size // 6),
    "pings": fill(frame(_LAST | _PING)),
    "pongs": fill(frame(_LAST | _PONG, b"a")),
    "pings within a message": lambda size: frame(_BINARY) + (frame(_MORE) + frame(_LAST | _PING)) * (size // 12),
    "a large message": lambda size: frame(_LAST | _BINARY, bytes(size)),
    "a message that is longer than it says": lambda size: frame(_LAST | _TEXT, b"a" * 100)[:50] + bytes(size),
}


class Connection:
    """Both ends of a connection that has everything at once, and takes everything."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    async def read(self, most: int) -> bytes:
        piece = self._data[self._at : self._at + most]
        self._at += len(piece)
        return piece

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Run what waits for nothing, but may give the event loop back."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def opened(connection: Connection) -> websocket.WebSocket:
    """Return the server's side of a connection, after the handshake."""
    ends = cast(Any, connection)
    socket: websocket.WebSocket = finish(websocket.accept(Stream(ends, ends), "/", _HANDSHAKE, None))
    return socket


def messages(data: bytes) -> int:
    """Read all messages of a client."""
    socket, count = opened(Connection(data)), 0
    while finish(socket.receive()) is not None:
        count += 1
    return count


CASES: list[Case] = [
    *cases("WebSocket", FRAMES, messages, largest=OBJECT),
    *cases(
        "subprotocols",
        {"names": fill("a,"), "commas": fill(","), "spaces": fill(" ", "a", ",b")},
        lambda text: offered([("sec-websocket-protocol", text)]),
        largest=HEAD,
    ),
]
