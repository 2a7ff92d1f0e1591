"""Lines of watches that wait for a browser: their size is limited, not their number."""

from __future__ import annotations

import asyncio

from wherry.ui.watching import WAITING_BYTES, Lines


async def test_lines_that_wait_have_a_limited_size() -> None:
    waiting, line, written = Lines(), b"x" * (WAITING_BYTES // 4), 0

    async def write() -> None:
        nonlocal written
        for _ in range(20):
            await waiting.put(line)
            written += 1
        await waiting.end()

    task = asyncio.create_task(write())
    for _ in range(100):
        await asyncio.sleep(0)
    assert written == 4
    sizes = [len(chunk) async for chunk in waiting.chunks()]
    assert sum(sizes) == 20 * len(line) and max(sizes) <= WAITING_BYTES
    await task


async def test_a_line_that_is_larger_than_the_limit_passes_alone() -> None:
    waiting, large = Lines(), b"x" * (WAITING_BYTES + 1)
    await waiting.put(large)
    small = asyncio.create_task(waiting.put(b"small"))
    await asyncio.sleep(0)
    assert not small.done()
    found = waiting.chunks()
    assert await anext(found) == large
    await small
    await waiting.end()
    assert [each async for each in found] == [b"small"]


async def test_small_lines_are_sent_together() -> None:
    waiting = Lines()
    for number in range(1000):
        await waiting.put(b"%d\n" % number)
    await waiting.end()
    assert [len(chunk.split()) async for chunk in waiting.chunks()] == [1000]
