"""Limits on answers in chunks to controllers in the server's process.

This server's own answers are whole, but for watches, whose chunks are whole events. Other answers in chunks are those of
servers behind a proxy, above all of extension API servers. Controllers decode them in this process, so they have limits of
bytes and of values; and since an extension may advertise thousands of resources, the incomplete events of all watches have one
together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from kube.errors import AnswerTooLong, StatusError, long_answer
from kube.value_count import marks

LONGEST_ANSWER = 32 << 20
"""Bytes of an answer of another server, unless the caller wants fewer."""
BYTES_PER_VALUE = 16
"""Length of a value of JSON on average, at least: usual objects have twice as many bytes for each comma or bracket."""
LONGEST_EVENT = 8 << 20
"""Bytes of one event of a watch. Objects of this server have 1.5 MiB."""
INCOMPLETE_EVENTS = 64 << 20
"""Bytes of the incomplete events of all watches."""
SMALL_EVENT = 128 << 10
"""Bytes of an event that may be incomplete in any case."""


async def joined(chunks: AsyncIterator[bytes], what: str, most_bytes: int) -> bytes:
    """Return an answer as a whole; raises StatusError 502 for more than `most_bytes`, or for many small values."""
    parts: list[bytes] = []
    size, values, most_values = 0, 0, most_bytes // BYTES_PER_VALUE
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        values += marks(chunk)
        if size > most_bytes:
            raise long_answer(what, most_bytes)
        if values > most_values:
            raise AnswerTooLong(502, "", f"{what} has more than {most_values} values")
    return b"".join(parts)


class _Incomplete(msgspec.Struct):
    size: int = 0


_incomplete = _Incomplete()


async def limited(chunks: AsyncIterator[bytes], what: str) -> AsyncIterator[bytes]:
    """Pass a watch on; raises StatusError 502 for an event above LONGEST_EVENT, or while all together have too many bytes."""
    size = 0
    try:
        async for chunk in chunks:
            end = chunk.rfind(b"\n")
            before, size = size, size + len(chunk) if end < 0 else len(chunk) - end - 1
            _incomplete.size += size - before
            if size > LONGEST_EVENT:
                raise long_answer(what, LONGEST_EVENT)
            if _incomplete.size > INCOMPLETE_EVENTS and size > SMALL_EVENT:
                raise StatusError(
                    502, "", f"{what} and others have more than {INCOMPLETE_EVENTS} bytes before their end"
                )
            yield chunk
    finally:
        _incomplete.size -= size
