"""Requests about many objects: the tasks that send them have the limit of the work that started them."""

from __future__ import annotations

import asyncio
import time

import pytest

from control.controllers.concurrent_requests import CONCURRENCY, for_each
from kube.step_limit import Limit, StepTooLong, limited, sampling
from kube.step_shares import Shares


def test_a_long_step_of_a_request_is_stopped_and_no_other_request_is_begun() -> None:
    begun = list[int]()

    async def act(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        until = time.thread_time() + 5
        while number == 0 and time.thread_time() < until:
            pass

    async def main() -> None:
        with sampling():
            limit = Limit(Shares("test", 0.2, 0.5, 60.0), "default")
            await limited(for_each(range(100 * CONCURRENCY), act), limit)

    began = time.thread_time()
    with pytest.raises(StepTooLong):
        asyncio.run(main())
    assert time.thread_time() - began < 2
    assert len(begun) < 2 * CONCURRENCY
