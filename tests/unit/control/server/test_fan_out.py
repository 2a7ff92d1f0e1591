"""An event that wakes many streams at once: their steps are spread over iterations of the event loop, in turn over users."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from control.auth.user import UserInfo
from control.http.exchange import Request
from control.server import pipeline as pipelines
from kube.step_limit import limited

from .test_step_limits import Server, nothing

STEP = 0.001


async def test_an_event_for_many_watches_of_a_user_leaves_the_loop_to_others_in_between() -> None:
    event, iteration, steps, order = asyncio.Event(), 0, Counter[int](), list[str]()
    pipeline: Any = Server()._pipeline

    async def chunks(user: str) -> AsyncIterator[bytes]:
        await event.wait()
        until = time.thread_time() + STEP
        while time.thread_time() < until:
            pass
        steps[iteration] += 1
        order.append(user)
        yield b"chunk"

    async def send(user: str) -> None:
        request = Request("GET", "/api/v1/watch/pods", b"", {}, nothing)
        request.user = UserInfo(user)

        async def write() -> None:
            async for _ in chunks(user):
                pass

        await limited(write(), pipeline.stream_limit(request))

    async def iterations() -> None:
        nonlocal iteration
        while True:
            await asyncio.sleep(0)
            iteration += 1

    counting = asyncio.create_task(iterations())
    sending = [asyncio.create_task(send(user)) for user in ["jane"] * 100 + ["ann"]]
    await asyncio.sleep(0.01)
    event.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*sending)
    counting.cancel()
    assert order.count("jane") == 100
    assert max(steps.values()) <= pipelines.STREAMS_SECONDS / STEP + 1, steps.most_common(3)
    assert order.index("ann") <= 20
