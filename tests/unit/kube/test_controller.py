"""The loop around reconcile."""

from __future__ import annotations

import asyncio

from kube.clock import FakeClock, settle
from kube.controller import Controller


async def test_keys_whose_reconciling_waits_for_nothing_do_not_keep_others_from_the_event_loop() -> None:
    done: list[str] = []

    async def reconcile(key: str) -> None:
        done.append(key)

    controller = Controller("test", reconcile, workers=2, clock=FakeClock())
    for number in range(100):
        controller.enqueue(str(number))
    task = asyncio.create_task(controller.run())
    seen = []
    while len(done) < 100:
        await settle(1)
        seen.append(len(done))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 2


async def test_a_key_whose_reconciling_was_cancelled_by_others_is_reconciled_again() -> None:
    clock, tries = FakeClock(), []

    async def reconcile(key: str) -> None:
        awaited = asyncio.get_running_loop().create_future()
        tries.append(key)
        if len(tries) == 1:
            awaited.cancel()
            await awaited

    controller = Controller("test", reconcile, workers=1, clock=clock)
    controller.enqueue("a")
    task = asyncio.create_task(controller.run())
    await clock.advance(1)
    controller.enqueue("b")
    await clock.advance(1)
    assert tries == ["a", "a", "b"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
