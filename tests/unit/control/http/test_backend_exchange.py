"""Requests to backends leave no connection open."""

import asyncio
from typing import Any, cast

import pytest

from control.http.backend_exchange import exchange
from control.http.exchange import Request


class Writer:
    closed = False

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.closed = True


async def _body(limit: int) -> bytes:
    return b""


@pytest.mark.parametrize("steps", range(12))
async def test_a_request_that_is_cancelled_while_its_answer_comes_closes_the_connection(steps: int) -> None:
    writers: list[Writer] = []

    async def dial() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 200 OK\r\n\r\n")
        writers.append(Writer())
        return reader, cast(Any, writers[-1])

    task = asyncio.create_task(exchange(Request("GET", "/", b"", {}, _body), dial, b""))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(result, BaseException):
        assert all(writer.closed for writer in writers)
    else:
        assert not writers[0].closed
