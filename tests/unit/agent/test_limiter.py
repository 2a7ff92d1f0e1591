"""The limiter of concurrent work, by priority."""

from __future__ import annotations

import asyncio

import pytest

from agent import limiter
from agent.limiter import Limiter
from agent.metrics.exposition import Text


async def test_a_limiter_serves_the_lowest_number_first_and_frees_what_is_cancelled() -> None:
    one = Limiter(1)
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with one.slot(priority):
            order.append(name)
            await asyncio.sleep(0)

    async with one.slot(0):
        tasks = [asyncio.create_task(work(n, p)) for n, p in (("late", 2), ("cancelled", 0), ("early", 0))]
        await asyncio.sleep(0)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["early", "late"]
    async with one.slot(0):
        pass


async def test_a_limiter_lends_the_places_of_those_who_hold_them_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.02)
    two, hung = Limiter(2), asyncio.Event()
    under_way = most = 0

    async def hang() -> None:
        async with two.slot(1):
            await hung.wait()

    async def work() -> None:
        nonlocal under_way, most
        async with two.slot(0):
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1

    hanging = [asyncio.create_task(hang()) for _ in range(9)]
    async with asyncio.timeout(5):
        await asyncio.gather(*(work() for _ in range(20)))
        assert most <= 2
        while two.slots_lent < 9:
            await asyncio.sleep(0.01)
        text = Text()
        two.write(text)
        assert "wherry_runtime_calls_held_long 9" in str(text) and "wherry_runtime_calls_waiting 0" in str(text)
        hung.set()
        await asyncio.gather(*hanging)
        await asyncio.gather(*(work() for _ in range(20)))
    assert (two.slots_lent, two.free, most) == (0, 2, 2)
