"""The limiter of concurrent work, by priority."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from agent import limiter
from agent.limiter import Limiter
from agent.metrics.exposition import Text
from agent.runtime import SANDBOX, START, STOP


async def test_a_limiter_serves_the_lowest_number_first_and_frees_what_is_cancelled() -> None:
    one = Limiter(1)
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with one.slot(priority, "n"):
            order.append(name)
            await asyncio.sleep(0)

    async with one.slot(0, "n"):
        tasks = [asyncio.create_task(work(n, p)) for n, p in (("late", 2), ("cancelled", 0), ("early", 0))]
        await asyncio.sleep(0)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["early", "late"]
    async with one.slot(0, "n"):
        pass


async def test_a_limiter_lends_the_places_of_those_who_hold_them_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.02)
    two, hung = Limiter(2), asyncio.Event()
    under_way = most = 0

    async def hang() -> None:
        async with two.slot(1, "n"):
            await hung.wait()

    async def work() -> None:
        nonlocal under_way, most
        async with two.slot(0, "n"):
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


async def order_of(calls: Sequence[tuple[str, int, str]], *, cancelled: Collection[str] = ()) -> list[str]:
    """Return the order in which calls, of which all wait for one slot, get it: names of (name, priority, namespace)."""
    one, order = Limiter(1), list[str]()

    async def call(name: str, priority: int, namespace: str) -> None:
        async with one.slot(priority, namespace):
            order.append(name)

    async with one.slot(0, ""):
        tasks = {name: asyncio.create_task(call(name, priority, namespace)) for name, priority, namespace in calls}
        await asyncio.sleep(0)
        for name in cancelled:
            tasks[name].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert one.free == 1
    return order


async def test_calls_of_a_lower_priority_are_passed_over_three_times_at_most() -> None:
    calls = [(f"start{n}", 0, "n") for n in range(12)] + [("stop", 1, "n"), ("run0", 2, "n"), ("run1", 2, "n")]
    order = await order_of(calls)
    assert order[:6] == ["start0", "start1", "start2", "stop", "run0", "start3"]
    assert order.index("run1") == 8


async def test_slots_of_a_priority_go_round_robin_over_namespaces() -> None:
    calls = [(f"many{n}", 0, "many") for n in range(9)] + [("few0", 0, "few"), ("few1", 0, "few"), ("one", 0, "one")]
    assert (await order_of(calls))[:6] == ["many0", "few0", "one", "many1", "few1", "many2"]


async def test_cancelled_calls_are_skipped() -> None:
    calls = [("a", 0, "n"), ("b", 0, "n"), ("c", 0, "other"), ("d", 1, "n"), ("e", 2, "other")]
    assert await order_of(calls, cancelled={"a", "c", "e"}) == ["b", "d"]


async def test_a_namespace_that_always_has_calls_keeps_none_of_others_waiting() -> None:
    two, ended = Limiter(2), asyncio.Event()
    calls = 0

    async def many() -> None:
        nonlocal calls
        while not ended.is_set():
            async with two.slot(START, "many"):
                calls += 1
                await asyncio.sleep(0)

    async def other(priority: int) -> int:
        before = calls
        async with two.slot(priority, "other"):
            return calls - before

    busy = [asyncio.create_task(many()) for _ in range(30)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            passed = await asyncio.gather(*(other(priority) for priority in (START, STOP, SANDBOX)))
    finally:
        ended.set()
        await asyncio.gather(*busy)
    assert max(passed) <= 8
    assert two.free == 2
