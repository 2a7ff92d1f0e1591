from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kube.client import Response
from kube.retry_after import TIMES, RetryAfterTransport
from tests.support.clock import FakeClock


class Server:
    """Gives its answers one after the other, and the last one for ever."""

    def __init__(self, *answers: tuple[int, Mapping[str, str]]) -> None:
        self.answers, self.calls = list(answers), 0

    async def request(self, method: str, path: str, **_: Any) -> Response:
        self.calls += 1
        status, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(status, headers, b"")

    def stream(self, path: str, **_: Any) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def close(self) -> None: ...


async def ask(server: Server, clock: FakeClock) -> int:
    task = asyncio.create_task(RetryAfterTransport(server, clock).request("POST", "/"))
    while not task.done():
        await asyncio.sleep(0)
        await clock.advance(1)
    return (await task).status


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_a_request_is_sent_again_after_retry_after(status: int) -> None:
    clock, server = FakeClock(), Server((status, {"Retry-After": "2"}), (201, {}))
    began = clock.monotonic()
    assert await ask(server, clock) == 201
    assert server.calls == 2 and clock.monotonic() - began >= 2


@pytest.mark.parametrize(
    ("status", "headers"),
    [(504, {}), (409, {"Retry-After": "1"}), (200, {"Retry-After": "1"}), (503, {"Retry-After": "Fri, 31 Dec"})],
)
async def test_any_other_answer_is_given_as_it_is(status: int, headers: Mapping[str, str]) -> None:
    server = Server((status, headers))
    assert await ask(server, FakeClock()) == status
    assert server.calls == 1


async def test_it_ends_at_some_time() -> None:
    server = Server((503, {"Retry-After": "1"}))
    assert await ask(server, FakeClock()) == 503
    assert server.calls == TIMES + 1
