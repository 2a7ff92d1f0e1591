"""Timeouts that do not count the time in which the event loop was blocked."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from kube.loop_timeout import LONGEST, SPAN, LoopTimeout

Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("seconds", [SPAN / 2, 0.2])
async def test_work_without_end_is_stopped_after_its_time(seconds: float) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with LoopTimeout(seconds):
            await _forever()
    assert time.monotonic() - began >= seconds


async def test_several_blocks_have_one_timeout() -> None:
    limit = LoopTimeout(0.2)
    async with limit:
        await asyncio.sleep(0.1)
    assert limit.left <= 0.2 - SPAN  # of time in which the loop was blocked, a span counts
    with pytest.raises(TimeoutError):
        async with limit:
            await _forever()
    with pytest.raises(TimeoutError):
        async with limit:
            await _forever()


async def test_an_error_and_a_cancellation_of_the_work_pass() -> None:
    with pytest.raises(ValueError, match="wrong"):
        async with LoopTimeout(1.0):
            raise ValueError("wrong")

    async def work() -> None:
        async with LoopTimeout(60.0):
            await _forever()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


@LOOPS
def test_a_response_that_arrives_while_the_loop_is_blocked_is_in_time(new_loop: Loop) -> None:
    async def received() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        answers = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, "response"))
        loop.call_soon(answers.start)
        loop.call_soon(time.sleep, 0.5)
        async with LoopTimeout(0.2):
            response = await future
            for _ in range(5):  # as many iterations as its parts take
                await asyncio.sleep(0)
            return response

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(received()) == "response"


@LOOPS
def test_work_without_end_is_stopped_while_the_loop_is_blocked_again_and_again(new_loop: Loop) -> None:
    seconds = 0.1

    async def blocked() -> float:
        async def block() -> None:
            while True:
                time.sleep(SPAN + 0.03)  # noqa: ASYNC251 - as work that does not yield
                await asyncio.sleep(0)

        task = asyncio.create_task(block())
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with LoopTimeout(seconds):
                await _forever()
        task.cancel()
        return time.monotonic() - began

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert seconds < runner.run(blocked()) < seconds * LONGEST + 1.0
