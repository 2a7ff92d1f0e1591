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
