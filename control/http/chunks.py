"""Chunks of a response, and release of its resources: a connection, a watcher, an audit event.

The `finally` of an asynchronous generator does not run if the generator is closed before its first step. So
`aclose` of a class releases what is held from before the first step.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Release = Callable[[], Awaitable[None]]


class Chunks:
    """Chunks of an iterator. `release` runs once: when they are closed, iterated or not, or when the iterator calls it."""

    __slots__ = ("_chunks", "_release", "_released")

    def __init__(self, make: Callable[[Release], AsyncIterator[bytes]], release: Release) -> None:
        """`make` is given what the iterator calls at its end, if that must not wait for `aclose`."""
        self._released, self._release = False, release
        self._chunks = make(self.release)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    def __anext__(self) -> Awaitable[bytes]:
        return self._chunks.__anext__()

    async def release(self) -> None:
        """Release what the chunks hold; further calls change nothing."""
        if not self._released:
            self._released = True
            await self._release()

    async def aclose(self) -> None:
        """Close the iterator, and release what the chunks hold."""
        try:
            await close(self._chunks)
        finally:
            await self.release()


async def close(chunks: AsyncIterator[bytes]) -> None:
    """Close an iterator of chunks if it can be closed."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        with contextlib.suppress(RuntimeError):  # a step of it was stopped
            await aclose()
