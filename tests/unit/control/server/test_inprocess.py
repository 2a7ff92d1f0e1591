from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Answer, Request, Stream
from control.server.inprocess import InProcessTransport
from control.server.pipeline import Pipeline
from kube.errors import StatusError


class EndlessPipeline:
    """Answers each request with a stream that stops in the middle."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.closed = 0

    async def answer(self, request: Request, *rest: Any) -> Answer:
        self.paths.append(request.path)
        return Stream(self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            self.closed += 1


@pytest.fixture
def pipeline() -> EndlessPipeline:
    return EndlessPipeline()


@pytest.fixture
def transport(pipeline: EndlessPipeline) -> InProcessTransport:
    return InProcessTransport(cast(Pipeline, pipeline), UserInfo("jane"))


async def test_an_answer_without_an_end_is_given_up(transport: InProcessTransport, pipeline: EndlessPipeline) -> None:
    with pytest.raises(StatusError, match=r"no answer to GET .* seconds") as raised:
        await transport.request("GET", "/api/v1/nodes/n/proxy/x", timeout=0.05)
    assert (raised.value.code, pipeline.closed) == (504, 1)


@pytest.mark.parametrize("escape", ["%2F", "%2f"])
async def test_an_encoded_slash_is_refused(
    transport: InProcessTransport, pipeline: EndlessPipeline, escape: str
) -> None:
    with pytest.raises(StatusError, match="invalid request path") as raised:
        await transport.request("GET", f"/api/v1/nodes/n{escape}proxy")
    assert (raised.value.code, pipeline.paths) == (400, [])
