"""Frames of streams: SPDY, and the channels of WebSockets."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from agent.streaming import spdy
from agent.streaming.channels import MessageDecoder, choose
from agent.streaming.frame_splitter import FRAGMENT
from agent.streaming.websocket import Fragment
from tests.support.cost import Case
from tests.support.cost_cases.inputs import OBJECT, cases, fill


def spdy_frames(build: Callable[[int], bytes]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        connection = spdy.Connection(client=False)
        return sum(len(connection.receive(data[at : at + 4096])) for at in range(0, len(data), 4096))

    return read


def _syn(headers: bytes) -> bytes:
    payload = (1).to_bytes(4, "big") + bytes(6) + headers
    return bytes([0x80, 3, 0, 1, 0]) + len(payload).to_bytes(3, "big") + payload


def _headers(count: int, claimed: int | None = None) -> bytes:
    block = (count if claimed is None else claimed).to_bytes(4, "big")
    block += b"".join((4).to_bytes(4, "big") + b"%04x" % (i & 0xFFFF) + bytes(4) for i in range(count))
    packer = zlib.compressobj(zdict=spdy.DICTIONARY)
    return packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)


SPDY: dict[str, Callable[[int], bytes]] = {
    "data frames": fill(bytes([0, 0, 0, 1, 0, 0, 0, 1, 65])),
    "empty frames": fill(bytes([0, 0, 0, 1, 0, 0, 0, 0])),
    "pings": fill(bytes([0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1])),
    "headers": lambda size: _syn(_headers(size // 12)),
    "headers that are claimed": lambda size: _syn(_headers(size // 12, 0xFFFFFFFF)),
    "a large frame in pieces": lambda size: (
        bytes([0, 0, 0, 1, 0]) + min(size, 0xFFFFFF).to_bytes(3, "big") + bytes(size)
    ),
}


def channels(name: str) -> Callable[[bytes], object]:
    protocol = choose([name])
    assert protocol is not None

    def decode(message: bytes) -> object:
        decoder = MessageDecoder(protocol)
        for at in range(0, len(message), FRAGMENT):
            decoder.decode(Fragment(message[at : at + FRAGMENT], at == 0, at + FRAGMENT >= len(message)))
        return None

    return decode


CASES = [
    *(Case(f"SPDY: {name}", build, spdy_frames(build), OBJECT, (spdy.SPDYError,)) for name, build in SPDY.items()),
    *cases(
        "channel",
        {"base64": fill(b"YWJj", "0"), "newlines": fill(b"\n", "0")},
        channels("v4.base64.channel.k8s.io"),
        largest=OBJECT,
    ),
]
