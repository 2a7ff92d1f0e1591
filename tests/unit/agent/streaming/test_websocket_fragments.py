"""Fragments of WebSocket messages: they are put together, and take no memory beside what they hold."""

from __future__ import annotations

import tracemalloc

import pytest

from agent.streaming.frame_splitter import FRAGMENT
from agent.streaming.websocket import Fragment
from tests.support.cost_cases.websockets import Connection, finish, frame, opened

BEGINNING, MORE, LAST, PING = 2, 0, 0x80, 0x89


def test_fragments_are_received_as_they_come_whatever_comes_between_them() -> None:
    sent = (
        frame(BEGINNING, b"a") + frame(PING) + frame(MORE) + frame(MORE, b"b") + frame(LAST, b"c") + frame(0x82, b"d")
    )
    socket = opened(Connection(sent))
    assert [finish(socket.receive()) for _ in range(5)] == [
        Fragment(b"a", True, False),
        Fragment(b"b", False, False),
        Fragment(b"c", False, True),
        Fragment(b"d"),
        None,
    ]


def _masked(first: int, payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    head = bytes([first]) + (bytes([0x80 | size]) if size < 126 else b"\xff" + size.to_bytes(8, "big"))
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_a_large_frame_is_received_in_fragments_however_it_is_read(chunk: int) -> None:
    payload = bytes(range(256)) * (3 * FRAGMENT // 256) + b"end"
    sent = _masked(0x02, payload[:5], b"abcd") + _masked(0x80, payload[5:], b"\1\2\3\4") + _masked(0x82, b"x", b"zzzz")

    class Slow(Connection):
        async def read(self, most: int) -> bytes:
            return await super().read(min(most, chunk) if self._at else most)

    socket = opened(Slow(sent))
    received = []
    while (fragment := finish(socket.receive())) is not None:
        received.append(fragment)
    assert b"".join(each.data for each in received[:-1]) == payload and received[-1] == Fragment(b"x")
    assert [each.begins for each in received] == [True, *[False] * (len(received) - 2), True]
    assert [each.ends for each in received] == [*[False] * (len(received) - 2), True, True]
    assert max(len(each.data) for each in received) == FRAGMENT


@pytest.mark.parametrize("first", [0x82, 0x02, 0x89])
def test_an_unfinished_frame_takes_little_memory(first: int) -> None:
    class Endless(Connection):
        async def read(self, most: int) -> bytes:
            self._at += 1
            return bytes([first, 0xFF]) + (1 << 62).to_bytes(8, "big") + bytes(4) if self._at == 1 else bytes(most)

    socket = opened(Endless(b""))
    tracemalloc.start()
    try:
        for _ in range(200):
            if finish(socket.receive()) is None:
                break
        assert tracemalloc.get_traced_memory()[1] < 256 * 1024
    finally:
        tracemalloc.stop()
    assert (first == 0x89) == (finish(socket.receive()) is None)


@pytest.mark.parametrize(("content", "most"), [(b"", 64 * 1024), (b"ab", 128 * 1024)])
def test_fragments_without_an_end_take_memory_for_their_content_alone(content: bytes, most: int) -> None:
    class Endless(Connection):
        async def read(self, most: int) -> bytes:
            if piece := await super().read(most):
                return piece
            raise ConnectionResetError

    socket = opened(Endless(frame(BEGINNING) + frame(MORE, content) * 20_000))
    tracemalloc.start()
    try:
        while finish(socket.receive()) is not None:
            pass
        assert tracemalloc.get_traced_memory()[0] < most
    finally:
        tracemalloc.stop()
