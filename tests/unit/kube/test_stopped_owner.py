"""Work that goes on while a step of its owner's other work is stopped, on both event loops that daemons use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from kube.controller import Controller
from kube.step_limit import Limit, OwnerStopped, StepTooLong, complete, limited, sampling
from kube.step_shares import Shares
from tests.support.clock import FakeClock

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_sampled(work: Coroutine[Any, Any, Any]) -> Any:
        async def sampled() -> Any:
            with sampling():
                return await work

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(sampled())

    return run_sampled


def shares() -> Shares:
    return Shares("test", 0.2, 0.5, 60.0)


async def started(shared: Shares, owner: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    async def awaited() -> Any:
        return await limited(work, Limit(shared, owner, pauses=True))

    task = asyncio.create_task(awaited())
    await asyncio.sleep(0)
    return task


async def hold(go: asyncio.Event) -> None:
    await go.wait()
    while True:
        pass


def test_of_works_that_would_be_stopped_one_is_and_the_others_end_at_their_next_step(run: Run) -> None:
    async def both() -> list[type[Any]]:
        shared, go = shares(), asyncio.Event()
        tasks = [await started(shared, "evil", hold(go)) for _ in range(5)]
        go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(each) for each in found]

    assert sorted(run(both()), key=str) == sorted([StepTooLong, *[OwnerStopped] * 4], key=str)


def test_work_of_others_later_work_and_work_that_has_to_be_whole_goes_on(run: Run) -> None:
    async def wait(go: asyncio.Event) -> str:
        await go.wait()
        return "done"

    async def whole(go: asyncio.Event) -> str:
        complete()
        return await wait(go)

    async def all_of_them() -> list[Any]:
        shared, go, later = shares(), asyncio.Event(), asyncio.Event()
        stopped = await started(shared, "evil", hold(go))
        others = [await started(shared, "shop", wait(later)), await completing(shared, whole(later))]
        go.set()
        with pytest.raises(StepTooLong):
            await stopped
        others.append(await started(shared, "evil", wait(later)))
        later.set()
        return await asyncio.gather(*others)

    async def completing(shared: Shares, work: Coroutine[Any, Any, str]) -> asyncio.Task[Any]:
        async def awaited() -> str:
            return await limited(work, Limit(shared, "evil", completes=True, pauses=True))

        task = asyncio.create_task(awaited())
        await asyncio.sleep(0)
        return task

    assert run(all_of_them()) == ["done"] * 3


def test_work_that_ends_so_can_clean_up(run: Run) -> None:
    async def cleaning(go: asyncio.Event, cleaned: list[str]) -> None:
        try:
            await go.wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    async def both() -> list[str]:
        shared, go, cleaned = shares(), asyncio.Event(), list[str]()
        tasks = [await started(shared, "evil", work) for work in (hold(go), cleaning(go, cleaned))]
        go.set()
        assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [
            StepTooLong,
            OwnerStopped,
        ]
        return cleaned

    assert run(both()) == ["yes"]


def test_of_a_namespaces_keys_that_take_too_long_one_at_a_time_is_stopped(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.controller._shares", shares())
    stopped, reconciled = list[str](), list[str]()

    async def many() -> None:
        go = asyncio.Event()

        async def reconcile(key: str) -> None:
            reconciled.append(key)
            await go.wait()
            if key.startswith("evil"):
                try:
                    await hold(go)
                except BaseException:
                    stopped.append(key)
                    raise

        controller = Controller("test", reconcile, workers=6, clock=FakeClock())
        for number in range(5):
            controller.enqueue(f"evil/{number}")
        controller.enqueue("shop/a")
        running = asyncio.create_task(controller.run())
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.sleep(0.5)
        assert len(controller.queue) == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(many())
    assert len(reconciled) == 6 and len(stopped) == 1
