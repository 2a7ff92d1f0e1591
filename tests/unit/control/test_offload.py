"""Work on large objects: by a thread beside the event loop, a turn for each user."""

import asyncio
import sys
import threading

import pytest

from control.offload import LARGE, SWITCH_SECONDS, apart, run


def thread() -> str:
    return threading.current_thread().name


async def test_work_on_few_bytes_is_done_at_once_and_on_many_by_the_thread() -> None:
    here = thread()
    assert await run("ann", LARGE - 1, thread) == here
    assert (await run("ann", LARGE, thread)).startswith("large-objects")


async def test_the_event_loop_goes_on_while_the_thread_works() -> None:
    passed = threading.Event()
    working = asyncio.ensure_future(apart("ann", passed.wait, 10))
    await asyncio.sleep(0)
    passed.set()
    assert await working


async def test_what_work_raises_is_raised_to_who_asked() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await apart("ann", int, "x")


async def test_a_user_with_much_work_waits_behind_everybody_elses_first() -> None:
    begin, order = threading.Event(), list[str]()
    first = asyncio.ensure_future(apart("ann", begin.wait, 10))
    await asyncio.sleep(0)
    more = [asyncio.ensure_future(apart("ann", order.append, f"ann {number}")) for number in range(3)]
    others = [asyncio.ensure_future(apart(user, order.append, user)) for user in ("bob", "eve")]
    await asyncio.sleep(0)
    begin.set()
    await asyncio.gather(first, *more, *others)
    assert order == ["ann 0", "bob", "eve", "ann 1", "ann 2"]


async def test_work_that_nobody_waits_for_any_more_is_not_begun() -> None:
    begin, done = threading.Event(), list[str]()
    first = asyncio.ensure_future(apart("ann", begin.wait, 10))
    await asyncio.sleep(0)
    left = asyncio.ensure_future(apart("ann", done.append, "left"))
    await asyncio.sleep(0)
    left.cancel()
    begin.set()
    await first
    await apart("ann", done.append, "after")
    assert done == ["after"]


async def test_the_thread_lets_the_event_loop_in_often_and_only_while_it_works() -> None:
    usual = sys.getswitchinterval()
    assert await apart("ann", sys.getswitchinterval) == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == usual


def test_each_event_loop_has_turns_of_its_own() -> None:
    async def left_behind() -> None:
        working = asyncio.ensure_future(apart("ann", threading.Event().wait, 0.01))
        await asyncio.sleep(0)
        assert not working.done()

    asyncio.run(left_behind())
    assert asyncio.run(asyncio.wait_for(apart("ann", thread), 10)).startswith("large-objects")
