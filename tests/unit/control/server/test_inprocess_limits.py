"""The in-process transport reads streams, which other servers answer, only up to a limit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Answer, Request, Response, Stream
from control.server import answer_limits
from control.server.inprocess import InProcessTransport
from control.server.pipeline import Pipeline
from kube.client import Client, lines
from kube.errors import StatusError

MIB = 1 << 20


class ProxyingPipeline:
    """Answers each request with a stream of the given chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._all = chunks
        self.read, self.closed = 0, 0

    async def answer(self, request: Request, *rest: Any) -> Answer:
        return Stream(self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            for chunk in self._all:
                self.read += len(chunk)
                yield chunk
        finally:
            self.closed += 1


def transport(pipeline: Any) -> InProcessTransport:
    return InProcessTransport(cast(Pipeline, pipeline), UserInfo("jane"))


@pytest.mark.parametrize(("most", "limit"), [(None, 32 * MIB), (MIB, MIB)], ids=["by default", "as requested"])
async def test_an_answer_is_read_up_to_the_limit(most: int | None, limit: int) -> None:
    pipeline = ProxyingPipeline(b"A" * MIB for _ in range(1000))
    with pytest.raises(StatusError, match=rf"the answer to GET /apis/g/v1/x is longer than {limit} bytes") as raised:
        await Client(transport(pipeline)).call("GET", "/apis/g/v1/x", most_bytes=most)
    assert raised.value.code == 502
    assert (pipeline.read, pipeline.closed) == (limit + MIB, 1)


async def test_an_answer_of_too_many_values_is_refused() -> None:
    pipeline = ProxyingPipeline([b"[" + b"{}," * (answer_limits.LONGEST_ANSWER // 16), b"{}]"])
    with pytest.raises(StatusError, match="has more than 2097152 values"):
        await transport(pipeline).request("GET", "/apis/g/v1/x")


async def test_an_answer_within_the_limits_is_returned_whole() -> None:
    pipeline = ProxyingPipeline(b"A" * MIB for _ in range(32))
    assert len((await transport(pipeline).request("GET", "/apis/g/v1/x")).body) == 32 * MIB


async def test_an_answer_of_this_server_has_no_limit() -> None:
    class Local:
        async def answer(self, request: Request, *rest: Any) -> Answer:
            return Response(200, b"A" * (33 * MIB))

    assert len((await transport(Local()).request("GET", "/api/v1/pods", most_bytes=MIB)).body) == 33 * MIB


async def test_a_watch_whose_line_does_not_end_is_given_up() -> None:
    pipeline = ProxyingPipeline(b"A" * MIB for _ in range(1000))
    with pytest.raises(StatusError, match="an event of /apis/g/v1/x is longer than 8388608 bytes"):
        async with transport(pipeline).stream("/apis/g/v1/x") as chunks:
            assert [line async for line in lines(chunks)] == []
    assert (pipeline.read, pipeline.closed) == (9 * MIB, 1)


async def test_incomplete_events_of_all_watches_have_a_limit_together() -> None:
    event = [b"A" * MIB] * 7 + [b"\n"]
    async with contextlib.AsyncExitStack() as stack:
        watches = [
            aiter(await stack.enter_async_context(transport(ProxyingPipeline(event)).stream("/apis/g/v1/x")))
            for _ in range(12)
        ]
        for watch in watches[:9]:
            for _ in range(7):
                await anext(watch)
        assert answer_limits._incomplete.size == 63 * MIB
        await anext(watches[9])
        with pytest.raises(StatusError, match="an event of /apis/g/v1/x and others have more than 67108864 bytes"):
            await anext(watches[9])
        assert await anext(watches[0]) == b"\n", "a complete event takes nothing"
        for _ in range(7):
            await anext(watches[10])
    assert answer_limits._incomplete.size == 0


async def test_the_lines_of_a_watch_may_be_longer_together() -> None:
    pipeline = ProxyingPipeline([(b"A" * MIB + b"\n") * 2] * 20)
    async with transport(pipeline).stream("/apis/g/v1/x") as chunks:
        assert [len(line) async for line in lines(chunks)] == [MIB] * 40
