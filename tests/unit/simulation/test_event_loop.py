"""The simulated event loops: virtual time, the order of callbacks, and processes that are paused or killed."""

from __future__ import annotations

import asyncio
import random

import pytest

from simulation.event_loop import Deadlock, Scheduler
from simulation.processes import Process


def scheduler(seed: int = 0) -> Scheduler:
    return Scheduler(random.Random(seed))


def test_time_passes_only_when_nothing_can_run() -> None:
    world = scheduler()

    async def main() -> float:
        await asyncio.gather(asyncio.sleep(86_400), asyncio.sleep(10))
        return asyncio.get_running_loop().time()

    assert 86_400 <= world.run(main()) < 86_400.001


def test_callbacks_of_a_process_keep_their_order() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(1)

    scheduler().run(main())
    assert seen == list(range(20))


def interleaving(seed: int) -> list[str]:
    """Return the order in which two processes do twenty steps."""
    world, seen = scheduler(seed), list[str]()

    async def work(name: str) -> None:
        for _ in range(10):
            seen.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        tasks = [Process(name, world).start(work(name)) for name in "ab"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(1)

    world.run(main())
    return seen


def test_the_seed_chooses_the_order_of_processes_and_nothing_else_does() -> None:
    orders = {tuple(interleaving(seed)) for seed in range(8)}
    assert len(orders) > 4 and all(interleaving(seed) == interleaving(seed) for seed in range(3))


def test_a_killed_process_runs_nothing_more_not_even_finally() -> None:
    world, seen = scheduler(), list[str]()

    async def work() -> None:
        try:
            while True:
                seen.append("step")
                await asyncio.sleep(1)
        finally:
            seen.append("finally")

    async def main() -> int:
        process = Process("server", world)
        process.on_end(lambda: seen.append("reset"))
        process.start(work())
        await asyncio.sleep(3.5)
        process.kill()
        number = len(seen)
        await asyncio.sleep(60)
        assert number == len(seen)
        return number

    assert world.run(main()) == 5 and seen[-2:] == ["step", "reset"]


def test_a_paused_process_continues_where_it_was() -> None:
    world, seen = scheduler(), list[float]()

    async def work() -> None:
        while True:
            seen.append(world.seconds)
            await asyncio.sleep(1)

    async def main() -> None:
        process = Process("server", world)
        process.start(work())
        await asyncio.sleep(2.5)
        process.pause(100)
        await asyncio.sleep(101.5)

    world.run(main())
    assert [int(at) for at in seen] == [0, 1, 2, 102, 103]


def test_waiting_for_nothing_is_reported() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        scheduler().run(main())


def test_work_in_threads_is_done_in_this_thread_and_takes_time() -> None:
    async def main() -> tuple[int, float]:
        return await asyncio.to_thread(sum, [1, 2]), asyncio.get_running_loop().time()

    result, seconds = scheduler().run(main())
    assert result == 3 and seconds > 0
