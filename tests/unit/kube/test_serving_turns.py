"""Large answers are written a few pieces a round of the event loop, owners in turn."""

import asyncio
import time

from kube.serving.turns import LONG_ROUND, ROUND, Turns


async def test_a_round_of_the_loop_has_a_limited_number_of_turns() -> None:
    turns, written = Turns(), list[int]()

    async def write(number: int) -> None:
        await turns.take("ann")
        written.append(number)

    writing = [asyncio.ensure_future(write(number)) for number in range(5 * ROUND)]
    rounds = []
    while not all(each.done() for each in writing):
        before = len(written)
        await asyncio.sleep(0)
        rounds.append(len(written) - before)
    assert written == list(range(5 * ROUND))
    assert max(rounds) == ROUND


async def test_an_owner_with_many_pieces_waits_for_others_that_have_one() -> None:
    turns, written = Turns(), list[str]()

    async def write(owner: str) -> None:
        await turns.take(owner)
        written.append(owner)

    many = [asyncio.ensure_future(write("ann")) for _ in range(10 * ROUND)]
    await asyncio.sleep(0)
    one = asyncio.ensure_future(write("bob"))
    await asyncio.gather(one, *many)
    assert "bob" in written[: 3 * ROUND]


async def test_a_turn_that_nobody_waits_for_any_more_is_the_next_ones() -> None:
    turns = Turns()
    waiting = [asyncio.ensure_future(turns.take("ann")) for _ in range(ROUND + 2)]
    await asyncio.sleep(0)
    waiting[ROUND].cancel()
    async with asyncio.timeout(10):
        await waiting[-1]


async def test_the_last_of_an_owner_has_every_second_turn_and_the_first_the_others() -> None:
    turns, begun = Turns(newest=True), list[int]()

    async def begin(number: int) -> None:
        await turns.take("ann")
        begun.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(ROUND + 7)]
    await asyncio.gather(*waiting)
    first, last = ROUND, ROUND + 6
    assert begun == [*range(ROUND), first, last, first + 1, last - 1, first + 2, last - 2, first + 3]


async def test_after_a_long_round_there_are_turns_for_what_it_took() -> None:
    turns, begun = Turns(each=0.004), list[int]()

    async def begin(number: int) -> None:
        await turns.take("ann")
        begun.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(100)]
    await asyncio.sleep(0)
    before = len(begun)
    time.sleep(0.1)  # noqa: ASYNC251 - other work of the round
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 25 <= len(begun) - before <= 2 * LONG_ROUND
    await asyncio.gather(*waiting)
