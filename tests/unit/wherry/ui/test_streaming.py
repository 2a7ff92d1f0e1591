"""Answers of the page that are streamed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.types import Message

from wherry.ui.streaming import Streamed


async def test_an_answer_that_has_not_begun_is_an_error_when_the_page_ends() -> None:
    sent: list[Message] = []
    stop, never = asyncio.Event(), asyncio.Event()

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[AsyncIterator[bytes]]:
        stop.set()
        await never.wait()
        yield nothing()

    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    async def receive() -> Message:
        await never.wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await Streamed(opened(), "text/plain", stop)({"type": "http"}, receive, send)
    assert sent[0]["status"] == 503 and b"the page ends" in sent[1]["body"]
