"""Steps of many tasks that become runnable together: a few in each iteration of the event loop, in round robin over owners."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

import pytest
import uvloop

from kube.fair_steps import FairSteps
from kube.step_limit import Limit, limited
from kube.step_shares import Shares

STEP, TASKS = 0.004, 20
Loop = Callable[[], asyncio.AbstractEventLoop]


def _burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def _shares(seconds: float = 3.0) -> Shares:
    return Shares("test", seconds, 0.001, 60.0, FairSteps(0.001), every_step=True)


async def _in_order(
    shares: Shares, owners: list[str], step: float = STEP, spread: FairSteps | None = None
) -> list[str]:
    """Return in order the owners of tasks that became runnable together, and an empty string for each iteration."""
    order, released = list[str](), asyncio.Event()

    async def work(owner: str) -> None:
        await released.wait()
        _burn(step)
        order.append(owner)

    async def iterations() -> None:
        while True:
            await asyncio.sleep(0)
            order.append("")

    async def run(owner: str) -> None:
        await limited(work(owner), Limit(shares, owner, spread=spread))

    tasks = [asyncio.create_task(run(owner)) for owner in owners]
    for _ in range(3 * len(owners)):  # the first steps have their time in iterations of their own
        await asyncio.sleep(0)
    other = asyncio.create_task(iterations())
    released.set()
    await asyncio.gather(*tasks)
    other.cancel()
    return order


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_of_tasks_that_are_runnable_together_one_continues_in_an_iteration(new_loop: Loop) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        order = runner.run(_in_order(_shares(), ["attacker"] * TASKS))
    assert order.count("attacker") == TASKS
    together = [len(list(run)) for owner, run in itertools.groupby(order) if owner]
    assert max(together) <= 2


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_owner_with_one_task_does_not_wait_for_all_tasks_of_another(new_loop: Loop) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        order = runner.run(_in_order(_shares(), ["attacker"] * TASKS + ["victim"]))
    before = order[: order.index("victim")]
    assert before.count("attacker") <= 3


async def test_steps_that_take_little_do_not_wait() -> None:
    shares = Shares("test", 3.0, 0.2, 60.0, FairSteps(0.05), every_step=True)
    order = await _in_order(shares, ["one"] * TASKS, step=0.0)
    assert order[:TASKS] == ["one"] * TASKS


async def _most_at_once(fair: FairSteps, step: float = 0.0) -> int:
    """Return how many of twenty waiting steps continue in one iteration at most, if they take `step` seconds together."""
    fair.count(0.05)
    waiting = [fair.wait("owner") for _ in range(20)]
    done = [0]
    while done[-1] < 20:
        await asyncio.sleep(0)
        done.append(sum(waiter is not None and waiter.done() for waiter in waiting))
        if step and done[-1] > done[-2]:
            fair.count(step)
    return max(after - before for before, after in itertools.pairwise(done))


async def test_as_many_waiting_steps_continue_in_an_iteration_as_are_allowed() -> None:
    assert await _most_at_once(FairSteps(0.05, 4)) == 4


async def test_fewer_waiting_steps_continue_if_the_last_ones_were_long() -> None:
    assert await _most_at_once(FairSteps(0.05, 100), step=0.012) == 4


async def test_spread_steps_wait_for_each_other_and_are_not_charged() -> None:
    shares, spread = Shares("test", 0.001, 0.001, 60.0), FairSteps(0.004, 4)
    order = await _in_order(shares, ["attacker"] * 100 + ["victim"], 0.001, spread)
    together = [len(list(run)) for owner, run in itertools.groupby(order, bool) if owner]
    assert max(together) <= 5 and order.index("victim") < 20
    assert order.count("attacker") == 100
    assert not shares.delay("attacker")


async def test_a_cancelled_task_does_not_wait_and_delays_no_other() -> None:
    shares, released = _shares(), asyncio.Event()
    ended = list[str]()

    async def work(name: str) -> None:
        try:
            await released.wait()
            _burn(STEP)
        finally:
            ended.append(name)

    async def run(name: str) -> None:
        await limited(work(name), Limit(shares, "owner"))

    tasks = {name: asyncio.create_task(run(name)) for name in map(str, range(5))}
    for _ in range(20):
        await asyncio.sleep(0)
    released.set()
    await asyncio.sleep(0)  # the first has its step, and the others wait
    tasks["2"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert tasks["2"].cancelled() and ended == ["0", "2", "1", "3", "4"]


async def test_short_steps_are_charged_to_their_owner() -> None:
    shares = _shares(0.05)

    async def work() -> None:
        for _ in range(20):
            _burn(STEP)
            await asyncio.sleep(0)

    await limited(work(), Limit(shares, "attacker"))
    assert shares.delay("attacker") and not shares.delay("victim")


async def test_a_step_inside_of_another_limited_step_is_charged_once() -> None:
    shares = _shares(0.05)

    async def inner() -> None:
        _burn(0.1)

    async def outer() -> None:
        await limited(inner(), Limit(shares, "inner"))

    await limited(outer(), Limit(shares, "outer"))
    assert shares.delay("inner") and not shares.delay("outer")


async def test_an_owner_that_works_for_others_is_charged_for_long_steps_only() -> None:
    shares = _shares(0.05)
    limit = Limit(shares, "server")
    limit.every_step = False

    async def work() -> None:
        _burn(0.1)

    await limited(work(), limit)
    assert not shares.delay("server")
