"""The loop around reconcile."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from kube import controller as controllers
from kube.controller import Controller
from kube.fair_steps import FairSteps
from kube.step_limit import sampling
from kube.step_shares import Shares
from tests.support.clock import FakeClock, settle


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


async def test_a_key_that_holds_the_event_loop_is_stopped_and_its_namespace_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controllers, "_shares", Shares("test", 0.1, 0.5, 60.0))
    tries: list[str] = []

    async def reconcile(key: str) -> None:
        tries.append(key)
        while tries == ["bad/endless"]:
            pass

    clock = FakeClock()
    controller = Controller("test", reconcile, workers=1, clock=clock)
    with sampling():
        for key in ("bad/endless", "bad/other", "good/one", "node"):
            controller.enqueue(key)
        task = asyncio.create_task(controller.run())
        await clock.advance(1)
        assert tries == ["bad/endless", "good/one", "node"]
        monkeypatch.setattr(controllers, "_shares", Shares("test", 0.1, 0.5, 60.0))  # a minute of the machine's time
        await clock.advance(61)
        assert sorted(tries[3:]) == ["bad/endless", "bad/other"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_keys_of_one_owner_have_one_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects without a namespace, or keys that are no names, would else have a share each."""
    monkeypatch.setattr(controllers, "_shares", Shares("test", 0.1, 0.5, 60.0))
    tries: list[str] = []

    async def reconcile(key: str) -> None:
        tries.append(key)
        while tries == ["evil-1"]:
            pass

    clock = FakeClock()
    controller = Controller("test", reconcile, workers=1, clock=clock, owner=lambda key: key.partition("-")[0])
    with sampling():
        for key in ("evil-1", "evil-2", "good-1"):
            controller.enqueue(key)
        task = asyncio.create_task(controller.run())
        await clock.advance(1)
        assert tries == ["evil-1", "good-1"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_reconciling_of_many_controllers_is_spread_over_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = Shares("test", 3.0, 0.5, 60.0, FairSteps(0.01))
    monkeypatch.setattr(controllers, "_shares", shares)
    done: list[str] = []

    async def reconcile(key: str) -> None:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        done.append(key)

    several = [Controller(f"test {number}", reconcile, clock=FakeClock()) for number in range(10)]
    for each in several:
        each.enqueue("attacker/one")
        each.enqueue("attacker/other")
    several[-1].enqueue("victim/one")
    tasks = [asyncio.create_task(each.run()) for each in several]
    seen = [0]
    while len(done) < 21:
        await asyncio.sleep(0)
        seen.append(len(done))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 2
    assert not shares.delay("attacker"), "no other namespace's keys were delayed"


async def test_in_round_robin_keys_of_one_owner_that_take_long_keep_no_worker_from_others() -> None:
    started: list[str] = []

    async def reconcile(key: str) -> None:
        started.append(key)
        if key.startswith("evil/"):
            await asyncio.get_running_loop().create_future()

    controller = Controller("test", reconcile, workers=2, clock=FakeClock(), each=1)
    for number in range(5):
        controller.enqueue(f"evil/{number}")
    controller.enqueue("good/one")
    task = asyncio.create_task(controller.run())
    await settle()
    controller.enqueue("good/two")
    await settle()
    assert started == ["evil/0", "good/one", "good/two"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
