"""Work on large objects: by a thread outside the event loop, a turn for each user."""

import asyncio
import contextlib
import sys
import threading

import pytest

from control.event_loop import offload
from control.event_loop.offload import LARGE, apart, run
from control.event_loop.switch_interval import SWITCH_SECONDS
from control.event_loop.time_limit import Limited
from kube.errors import StatusError


def thread() -> str:
    return threading.current_thread().name


async def test_work_on_few_bytes_is_done_at_once_and_on_many_by_the_thread() -> None:
    here = thread()
    assert await run("ann", LARGE - 1, thread) == here
    assert (await run("ann", LARGE, thread)).startswith("large-objects")


async def test_work_of_many_requests_on_objects_below_that_does_not_add_up_in_a_round_of_the_loop() -> None:
    rounds = list[int]()
    loop, passed = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal passed
        passed += 1
        if len(rounds) < 40:
            loop.call_soon(count)

    loop.call_soon(count)
    works = (offload.run, offload.evaluate)
    await asyncio.gather(*(works[n % 2](f"u{n}", LARGE - 1, lambda: rounds.append(passed)) for n in range(40)))
    assert len(set(rounds)) == 40
    begun = passed
    await asyncio.gather(*(run(f"u{n}", offload.YIELD_WEIGHT - 1, lambda: rounds.append(passed)) for n in range(40)))
    assert set(rounds[40:]) == {begun}


async def test_the_event_loop_goes_on_while_the_thread_works() -> None:
    passed = threading.Event()
    working = asyncio.ensure_future(apart("ann", passed.wait, 10))
    await asyncio.sleep(0)
    passed.set()
    assert await working


async def test_an_exception_of_the_work_is_raised_in_the_caller() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await apart("ann", int, "x")


async def test_the_accounts_of_a_namespace_are_one_user() -> None:
    begin, order = threading.Event(), list[str]()
    first = asyncio.ensure_future(apart("system:serviceaccount:shop:a0", begin.wait, 10))
    await asyncio.sleep(0)
    accounts = [apart(f"system:serviceaccount:shop:a{n}", order.append, "shop") for n in range(1, 9)]
    other = apart("system:serviceaccount:blog:a", order.append, "blog")
    rest = asyncio.gather(*accounts, other)
    await asyncio.sleep(0.05)
    begin.set()
    await asyncio.gather(first, rest)
    assert order[0] == "blog"


async def test_whose_work_took_less_time_goes_first() -> None:
    begin, order = threading.Event(), list[str]()
    first = asyncio.ensure_future(apart("ann", begin.wait, 10))
    await asyncio.sleep(0.05)
    more = [asyncio.ensure_future(apart("ann", order.append, f"ann {number}")) for number in range(3)]
    others = [asyncio.ensure_future(apart(user, order.append, user)) for user in ("bob", "eve", "bob")]
    await asyncio.sleep(0)
    begin.set()
    await asyncio.gather(first, *more, *others)
    assert sorted(order[:3]) == ["bob", "bob", "eve"] and order[3:] == ["ann 0", "ann 1", "ann 2"]


async def test_an_idle_client_accumulates_no_credit() -> None:
    queue, order = offload._FairQueue(cancels=False), list[str]()
    queue._taken, queue._least = {"ann": 100.0, "bob": 5.0}, 60.0
    held, loop = asyncio.Event(), asyncio.get_running_loop()

    async def work(name: str) -> None:
        if name == "first":
            await held.wait()
        order.append(name)

    def requested(user: str, name: str) -> asyncio.Future[None]:
        return asyncio.ensure_future(queue.run(user, lambda: loop.create_task(work(name))))

    waiting = [requested("eve", "first")]
    await asyncio.sleep(0)
    waiting += [requested("ann", "ann"), requested("bob", "bob")]
    await asyncio.sleep(0)
    assert queue._taken == {"eve": 60.0, "bob": 60.0, "ann": 100.0}
    held.set()
    await asyncio.gather(*waiting)
    assert order == ["first", "bob", "ann"]


async def test_writes_go_before_pieces_of_reads_which_have_a_turn_now_and_then() -> None:
    begin, order = threading.Event(), list[str]()
    first = asyncio.ensure_future(apart("ann", begin.wait, 10))
    await asyncio.sleep(0)
    reads = [asyncio.ensure_future(offload.read(f"reader {n}", order.append, "read")) for n in range(2)]
    writes = [asyncio.ensure_future(apart(f"writer {n}", order.append, "write")) for n in range(6)]
    await asyncio.sleep(0)
    begin.set()
    await asyncio.gather(first, *reads, *writes)
    assert order == ["write"] * 3 + ["read"] + ["write"] * 3 + ["read"]  # ann's was a write, too


async def order_of(taken: dict[str, float], requested: list[tuple[str, bool]], seconds: float = 1.0) -> list[str]:
    """Return in which order users (writes, or reads where True) have their work done, that each take so many seconds."""
    queue, order = offload._FairQueue(cancels=False), list[str]()
    loop, held = asyncio.get_running_loop(), asyncio.Event()
    queue._taken = dict(taken)

    async def work(name: str) -> None:
        await held.wait()
        order.append(name)
        if name:
            queue._taken[name.partition(" ")[0]] += seconds

    async def turn(user: str, reading: bool) -> None:
        name = f"{user} {'reads' if reading else 'writes'}" if user else ""
        await queue.run(user, lambda: loop.create_task(work(name)), reading=reading)

    waiting = [asyncio.ensure_future(turn("", False)), *(asyncio.ensure_future(turn(*one)) for one in requested)]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*waiting)
    return order[1:]


async def test_the_writes_of_one_user_do_not_go_before_the_reads_of_another() -> None:
    requested = [("mallory", False)] * 6 + [("alice", True)] * 3
    found = await order_of({}, requested)
    assert found[:2] == ["mallory writes", "alice reads"] and found[:6].count("alice reads") == 3
    found = await order_of({"mallory": 30.0}, requested)
    assert found[:3] == ["alice reads"] * 3


async def test_a_users_own_reads_have_a_turn_after_some_writes() -> None:
    found = await order_of({}, [("ann", True)] * 2 + [("ann", False)] * 9)
    # What held the thread meanwhile was a write, too.
    assert found == [
        *["ann writes"] * 3,
        "ann reads",
        *["ann writes"] * 4,
        "ann reads",
        *["ann writes"] * 2,
    ]


async def test_who_has_a_job_ended_pays_for_the_new_process() -> None:
    queue, loop = offload._FairQueue(cancels=True), asyncio.get_running_loop()

    async def late() -> None:
        raise TimeoutError

    for user, work in (
        ("left", lambda: loop.create_task(asyncio.sleep(60))),
        ("late", lambda: loop.create_task(late())),
    ):
        requested = asyncio.ensure_future(queue.run(user, work))
        await asyncio.sleep(0)
        if user == "left":
            next(task for task in asyncio.all_tasks() if "sleep" in repr(task.get_coro())).cancel()
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await requested
        assert queue._taken[user] >= offload.STOP_SECONDS


async def test_few_of_those_who_wait_for_nothing_are_remembered() -> None:
    for number in range(offload.MOST_USERS + 10):
        await apart(f"user {number}", int)
    assert len(offload._workers().thread_queue._taken) <= offload.MOST_USERS


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


async def test_work_that_cannot_be_begun_fails_alone_and_others_have_their_turn() -> None:
    queue = offload._FairQueue(cancels=False)
    held: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def unable() -> asyncio.Future[str]:
        raise RuntimeError("can't start new thread")

    async def output(text: str) -> str:
        return text

    first = asyncio.ensure_future(queue.run("a", lambda: held))
    second = asyncio.ensure_future(queue.run("b", unable))
    third = asyncio.ensure_future(queue.run("c", lambda: asyncio.ensure_future(output("done"))))
    await asyncio.sleep(0)
    held.set_result("held")
    with pytest.raises(RuntimeError, match="new thread"):
        await second
    assert (await first, await asyncio.wait_for(third, 5)) == ("held", "done")
    with pytest.raises(RuntimeError, match="new thread"):
        await queue.run("a", unable)
    assert await asyncio.wait_for(queue.run("a", lambda: asyncio.ensure_future(output("again"))), 5) == "again"


def _endless() -> None:
    while True:
        with contextlib.suppress(Exception):
            sorted(range(100), key=lambda number: -number)


async def test_work_that_takes_too_long_is_a_timeout_and_the_thread_goes_on_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offload, "JOB_SECONDS", 0.05)
    works = run("ann", LARGE, _endless), offload.evaluate("ann", LARGE, _endless)
    for requested in (*works, apart("ann", _endless), offload.read("ann", _endless)):
        with pytest.raises(StatusError) as found:
            await requested
        assert (found.value.code, found.value.reason) == (504, "Timeout")
        assert found.value.message == "request did not complete within the allotted timeout"
    assert [await run(user, LARGE, lambda: 7) for user in ("ann", "bob")] == [7, 7]
    assert sys.getswitchinterval() != pytest.approx(SWITCH_SECONDS)


async def test_work_that_has_to_be_completed_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "JOB_SECONDS", 0.01)
    assert not await offload.complete("ann", threading.Event().wait, 0.05)


def test_work_that_has_ended_is_not_stopped_nor_is_what_its_thread_does_next() -> None:
    stopped = Limited(lambda: 7)
    assert stopped() == 7
    stopped.stop()
    assert sum(range(1000)) == 499500


def test_work_may_end_in_the_moment_in_which_it_is_stopped() -> None:
    begun, results = threading.Barrier(2), list[object]()

    def work(limited: Limited) -> None:
        begun.wait()
        try:
            results.append(limited())
        except StatusError as error:
            results.append(error.code)

    for _ in range(300):
        limited = Limited(lambda: sum(range(500)))
        other = threading.Thread(target=work, args=(limited,))
        other.start()
        begun.wait()
        limited.stop()
        other.join()
    assert len(results) == 300 and set(results) <= {124750, 504}


async def test_work_on_some_objects_is_done_in_the_same_iteration_up_to_the_weight_of_one() -> None:
    rounds = list[int]()
    loop, passed = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal passed
        passed += 1
        if len(rounds) < 9:
            loop.call_soon(count)

    loop.call_soon(count)
    each = LARGE // 3
    await asyncio.gather(*(run(f"u{n}", each, lambda: rounds.append(passed)) for n in range(9)))
    assert rounds[:3] == [rounds[0]] * 3
    assert len(set(rounds[3:])) == 6
