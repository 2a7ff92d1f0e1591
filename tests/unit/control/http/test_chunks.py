"""Chunks release what they hold once, however they end."""

from collections.abc import AsyncIterator

import pytest

from control.http.chunks import Chunks, Release


class Held:
    def __init__(self) -> None:
        self.released = 0
        self.chunks = Chunks(self._chunks, self._release)

    async def _chunks(self, release: Release) -> AsyncIterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            await release()

    async def _release(self) -> None:
        self.released += 1


async def test_chunks_that_were_never_iterated_release_what_they_hold() -> None:
    held = Held()
    await held.chunks.aclose()
    assert held.released == 1
    assert [chunk async for chunk in held.chunks] == []


async def test_chunks_that_were_iterated_release_what_they_hold_at_their_end_and_once() -> None:
    held = Held()
    assert [chunk async for chunk in held.chunks] == [b"a", b"b"]
    assert held.released == 1
    await held.chunks.aclose()
    await held.chunks.aclose()
    assert held.released == 1


async def test_chunks_that_are_closed_between_two_steps_release_what_they_hold() -> None:
    held = Held()
    assert await anext(held.chunks) == b"a"
    assert held.released == 0
    await held.chunks.aclose()
    assert held.released == 1


async def test_what_is_held_is_released_also_if_the_iterator_cannot_be_closed() -> None:
    held = Held()

    async def fails(_: Release) -> AsyncIterator[bytes]:
        try:
            yield b"a"
        finally:
            raise ValueError("no")

    held.chunks = Chunks(fails, held._release)
    await anext(held.chunks)
    with pytest.raises(ValueError, match="no"):
        await held.chunks.aclose()
    assert held.released == 1
