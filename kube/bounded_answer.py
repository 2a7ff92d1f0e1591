"""Reads responses of other servers up to a maximum length."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


async def read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return an answer's body; raises ValueError if it is longer than `limit` bytes, of which no more are read.

    Bytes are counted when they are decompressed, a piece at a time.
    """
    found = await beginning(answer, limit + 1)
    if len(found) > limit:
        raise ValueError(f"the answer is longer than {limit} bytes")
    return found


async def beginning(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the first bytes of an answer, at most so many."""
    found = bytearray()
    while len(found) < most and (more := await answer.content.read(most - len(found))):
        found += more
    return bytes(found)
