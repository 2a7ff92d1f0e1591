"""Limits of steps: a step that blocks the loop is stopped, and no other; on both event loops that daemons use."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import step_limit
from kube.step_limit import Limit, StepTooLong, limited, sampling
from kube.step_shares import Shares
from tests.support.cpu_signals import burn

T = TypeVar("T")
SECONDS = 0.2
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    def run_sampled(work: Coroutine[Any, Any, T]) -> T:
        async def sampled() -> T:
            with sampling():
                return await work

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(sampled())

    return run_sampled


def _shares() -> Shares:
    return Shares("test", SECONDS, 0.5, 60.0)


async def _forever() -> None:
    while True:
        pass


def test_a_step_without_end_is_stopped_and_the_loop_goes_on(run: Run[Any]) -> None:
    async def both() -> float:
        began = time.thread_time()
        task = asyncio.create_task(_limited(_forever()))
        with pytest.raises(StepTooLong):
            await task
        await asyncio.sleep(0)
        return time.thread_time() - began

    assert SECONDS <= run(both()) < SECONDS + 5 * step_limit.TICK


async def _limited(work: Coroutine[Any, Any, T], shares: Shares | None = None, owner: str = "") -> T:
    return await limited(work, Limit(shares or _shares(), owner))


def test_a_regular_expression_that_backtracks_without_end_is_stopped(run: Run[Any]) -> None:
    async def backtrack() -> None:
        re.match(r"(a+)+b", "a" * 60)

    with pytest.raises(StepTooLong):
        run(_limited(backtrack()))


def test_work_of_many_short_steps_is_not_stopped(run: Run[Any]) -> None:
    async def work() -> str:
        for _ in range(10):
            burn(SECONDS / 2)
            await asyncio.sleep(0)
        return "done"

    assert run(_limited(work())) == "done"


def test_time_that_the_step_does_not_compute_does_not_count(run: Run[Any]) -> None:
    async def work() -> str:
        other = threading.Thread(target=time.sleep, args=(SECONDS * 3,))
        other.start()
        other.join()
        return "done"

    assert run(_limited(work())) == "done"


def test_time_of_other_threads_does_not_count(run: Run[Any]) -> None:
    async def work() -> str:
        others = [threading.Thread(target=burn, args=(SECONDS * 3,)) for _ in range(2)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        return "done"

    assert run(_limited(work())) == "done"


def test_what_is_awaited_raises_and_is_cancelled_as_without_a_limit(run: Run[Any]) -> None:
    seen: list[str] = []

    async def work() -> str:
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, ValueError("wrong"))
        try:
            await failing
        except ValueError as error:
            seen.append(str(error))
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
        return "never"

    async def cancelled() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned up")
        return "never"

    async def both() -> None:
        with pytest.raises(TimeoutError):
            await _limited(work())
        task = asyncio.create_task(_limited(cancelled()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(both())
    assert seen == ["wrong", "cleaned up"]


def test_work_cleans_up_after_a_stop_and_that_is_limited_too(run: Run[Any]) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await _forever()
        finally:
            seen.append("finally")
            await _forever()

    with pytest.raises(StepTooLong):
        run(_limited(work()))
    assert seen == ["finally"]


def test_the_inner_limit_counts_inside_and_the_outer_one_after_it(run: Run[Any]) -> None:
    async def outer(inner: Shares) -> None:
        with pytest.raises(StepTooLong):
            await _limited(_forever(), inner)
        await _forever()

    shares, inside = _shares(), _shares()
    with pytest.raises(StepTooLong):
        run(_limited(outer(inside), shares, "ann"))
    assert shares.delay("ann") > 0
    assert inside.delay("") > 0


def test_whose_step_was_stopped_waits_and_nobody_else(run: Run[Any]) -> None:
    shares = _shares()
    with pytest.raises(StepTooLong):
        run(_limited(_forever(), shares, "ann"))
    assert 50 < shares.delay("ann") <= 60
    assert not shares.delay("bob")


def test_long_steps_that_are_not_stopped_may_take_a_share_of_the_time(run: Run[Any]) -> None:
    shares = Shares("test", SECONDS, 0.01, 60.0)

    async def work() -> None:
        for _ in range(6):
            burn(SECONDS * 0.75)
            await asyncio.sleep(0)

    run(_limited(work(), shares, "ann"))
    assert 0 < shares.delay("ann") < 50  # not stopped: that would be a minute
    short = _shares()

    async def quick() -> None:
        for _ in range(200):
            burn(0.005)
            await asyncio.sleep(0)

    run(_limited(quick(), short, "ann"))
    assert not short.delay("ann")


def test_nothing_is_limited_in_another_thread_and_nothing_breaks() -> None:
    found: list[str] = []

    async def work() -> None:
        with sampling():
            found.append(await _limited(_burn_for(SECONDS * 2)))

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join()
    assert found == ["done"]


async def _burn_for(seconds: float) -> str:
    burn(seconds)
    return "done"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.0, 0.12), min_size=1, max_size=8))
def test_a_step_that_ends_about_when_it_would_be_stopped_harms_nothing(durations: list[float]) -> None:
    shares = Shares("test", 0.03, 0.5, 0.0)

    async def one(duration: float) -> str:
        try:
            return await _limited(_burn_for(duration), shares)
        except StepTooLong:
            return "stopped"

    async def work() -> list[str]:
        with sampling():
            return await asyncio.gather(*(one(duration) for duration in durations))

    assert set(asyncio.run(work())) <= {"done", "stopped"}
    assert step_limit._current.limit is None


@pytest.mark.parametrize("completes", [True, False])
def test_work_that_completes_is_charged_and_not_stopped_from_when_it_says_so(run: Run[Any], completes: bool) -> None:
    async def work() -> str:
        step_limit.complete()
        return await _burn_for(SECONDS * 3)

    shares = Shares("test", SECONDS, 0.01, 60.0)
    limit = Limit(shares, "ann", completes=completes)

    async def carried() -> str:
        return await limited(work(), limit)

    if completes:
        assert run(carried()) == "done"
        assert shares.delay("ann") > 0
    else:
        with pytest.raises(StepTooLong):
            run(carried())


def test_what_is_whole_is_not_stopped_and_what_follows_is(run: Run[Any]) -> None:
    seen: list[str] = []

    async def work() -> None:
        with step_limit.whole():
            seen.append(await _burn_for(SECONDS * 2))
        await asyncio.sleep(0)
        await _forever()

    async def carried() -> None:
        await limited(work(), Limit(_shares(), completes=True))

    with pytest.raises(StepTooLong):
        run(carried())
    assert seen == ["done"]


def test_a_new_task_may_complete_what_the_limit_of_its_request_would_stop(run: Run[Any]) -> None:
    shares = _shares()

    async def whole() -> str:
        step_limit.complete()
        return await _burn_for(SECONDS * 2)

    async def request() -> str:
        assert await asyncio.create_task(step_limit.inherited(whole(), completes=True)) == "done"
        return await _forever_as("never")

    async def _forever_as(text: str) -> str:
        await _forever()
        return text

    with pytest.raises(StepTooLong):
        run(_limited(request(), shares, "ann"))
    assert shares.delay("ann") > 0
