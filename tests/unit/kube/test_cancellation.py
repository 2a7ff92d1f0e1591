from __future__ import annotations

import asyncio

import pytest

from kube import cancellation
from kube.cancellation import AwaitedCancelled
from tests.support.clock import settle


async def _of_others() -> None:
    awaited = asyncio.get_running_loop().create_future()
    awaited.cancel()
    await awaited


async def test_a_part_whose_call_was_cancelled_by_others_fails_its_task_group() -> None:
    async def beside() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(beside())
            group.create_task(cancellation.as_error(_of_others()))
    assert raised.group_contains(AwaitedCancelled)


async def test_a_task_that_was_cancelled_ends_so() -> None:
    task = asyncio.create_task(cancellation.as_error(asyncio.sleep(60)))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await cancellation.as_error(asyncio.sleep(0, "result")) == "result"


async def test_a_started_task_fails_its_group_and_one_that_the_group_cancels_is_no_failure() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            beside = cancellation.start(group, forever, "beside")
            cancellation.start(group, _of_others, "of others")
    assert raised.group_contains(AwaitedCancelled)
    assert beside.cancelled()
