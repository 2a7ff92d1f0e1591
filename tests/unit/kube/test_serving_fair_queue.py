"""Large answers are written a few pieces a round of the event loop, owners in turn."""

import asyncio
import time

import pytest

from kube.serving.fair_queue import PER_ITERATION, PER_LONG_ITERATION, FairQueue, Slots


async def test_a_round_of_the_loop_has_a_limited_number_of_turns() -> None:
    queue, written = FairQueue(), list[int]()

    async def write(number: int) -> None:
        await queue.wait("ann")
        written.append(number)

    writing = [asyncio.ensure_future(write(number)) for number in range(5 * PER_ITERATION)]
    rounds = []
    while not all(each.done() for each in writing):
        before = len(written)
        await asyncio.sleep(0)
        rounds.append(len(written) - before)
    assert written == list(range(5 * PER_ITERATION))
    assert max(rounds) == PER_ITERATION


async def test_an_owner_with_many_pieces_waits_for_others_that_have_one() -> None:
    queue, written = FairQueue(), list[str]()

    async def write(owner: str) -> None:
        await queue.wait(owner)
        written.append(owner)

    many = [asyncio.ensure_future(write("ann")) for _ in range(10 * PER_ITERATION)]
    await asyncio.sleep(0)
    one = asyncio.ensure_future(write("bob"))
    await asyncio.gather(one, *many)
    assert "bob" in written[: 3 * PER_ITERATION]


async def test_a_turn_that_nobody_waits_for_any_more_is_the_next_ones() -> None:
    queue = FairQueue()
    waiting = [asyncio.ensure_future(queue.wait("ann")) for _ in range(PER_ITERATION + 2)]
    await asyncio.sleep(0)
    waiting[PER_ITERATION].cancel()
    async with asyncio.timeout(10):
        await waiting[-1]


async def test_the_last_of_an_owner_has_every_second_turn_and_the_first_the_others() -> None:
    queue, begun = FairQueue(newest=True), list[int]()

    async def begin(number: int) -> None:
        await queue.wait("ann")
        begun.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(PER_ITERATION + 7)]
    await asyncio.gather(*waiting)
    first, last = PER_ITERATION, PER_ITERATION + 6
    assert begun == [*range(PER_ITERATION), first, last, first + 1, last - 1, first + 2, last - 2, first + 3]


async def test_after_a_long_round_there_are_turns_for_what_it_took() -> None:
    queue, begun = FairQueue(each=0.004), list[int]()

    async def begin(number: int) -> None:
        await queue.wait("ann")
        begun.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(100)]
    await asyncio.sleep(0)
    before = len(begun)
    time.sleep(0.1)  # noqa: ASYNC251 - other work of the round
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 25 <= len(begun) - before <= 2 * PER_LONG_ITERATION
    await asyncio.gather(*waiting)


async def test_so_many_slots_are_held_at_a_time_and_owners_have_them_in_turn() -> None:
    slots, held, most, done = Slots(2), 0, 0, list[str]()

    async def work(owner: str) -> None:
        nonlocal held, most
        async with slots.slot(owner):
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1
        done.append(owner)

    many = [asyncio.ensure_future(work("ann")) for _ in range(20)]
    await asyncio.sleep(0)
    one = asyncio.ensure_future(work("bob"))
    await asyncio.gather(one, *many)
    assert most == 2 and "bob" in done[:6]


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "in the round in which it was given its slot"])
async def test_a_slot_whose_owner_is_cancelled_is_the_next_ones(given: bool) -> None:
    slots = Slots(1)

    async def work() -> None:
        async with slots.slot("ann"):
            pass

    async with slots.slot("ann"):
        first, second = (asyncio.ensure_future(work()) for _ in range(2))
        await asyncio.sleep(0)
        if not given:
            first.cancel()
    first.cancel()
    async with asyncio.timeout(10):
        await second
        await work()
    assert first.cancelled()


async def test_what_goes_ahead_waits_for_none_of_its_owners_others() -> None:
    slots, order = Slots(1, newest=True), list[str]()

    async def work(name: str, *, ahead: bool) -> None:
        await slots.acquire("ann", ahead=ahead)
        order.append(name)
        slots.release()

    await slots.acquire("ann")
    working = [asyncio.ensure_future(work(str(number), ahead=False)) for number in range(4)]
    working += [asyncio.ensure_future(work(name, ahead=True)) for name in ("a", "b")]
    await asyncio.sleep(0)
    slots.release()
    await asyncio.gather(*working)
    assert order == ["a", "b", "0", "3", "1", "2"]


async def test_an_owner_does_not_go_ahead_of_others() -> None:
    slots, order = Slots(1), list[str]()

    async def work(owner: str, *, ahead: bool) -> None:
        await slots.acquire(owner, ahead=ahead)
        order.append(owner)
        slots.release()

    await slots.acquire("ann")
    working = [asyncio.ensure_future(work("bob", ahead=False))]
    working += [asyncio.ensure_future(work("ann", ahead=True)) for _ in range(3)]
    await asyncio.sleep(0)
    slots.release()
    await asyncio.gather(*working)
    assert order == ["bob", "ann", "ann", "ann"]
