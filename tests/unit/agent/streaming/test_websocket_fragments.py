"""Fragments of WebSocket messages: they are put together, and take no memory beside what they hold."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.support.cost_cases.websockets import Connection, finish, frame, opened

BEGINNING, MORE, LAST, PING = 2, 0, 0x80, 0x89


def test_a_message_is_put_together_whatever_comes_between_its_fragments() -> None:
    sent = (
        frame(BEGINNING, b"a") + frame(PING) + frame(MORE) + frame(MORE, b"b") + frame(LAST, b"c") + frame(0x82, b"d")
    )
    socket = opened(Connection(sent))
    assert [finish(socket.receive()) for _ in range(3)] == [b"abc", b"d", None]


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
        with pytest.raises(ConnectionResetError):
            finish(socket.receive())
        assert tracemalloc.get_traced_memory()[0] < most
    finally:
        tracemalloc.stop()
