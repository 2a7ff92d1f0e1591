"""Large answers are written a few pieces a round of the event loop, owners in turn."""

import asyncio

import pytest

from kube.serving.turns import ROUND, Turns


@pytest.mark.parametrize("a_round", [1, ROUND])
async def test_a_round_of_the_loop_has_a_limited_number_of_turns(a_round: int) -> None:
    turns, written = Turns(a_round), list[int]()

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
    assert max(rounds) == a_round


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
    turns, begun = Turns(1, newest=True), list[int]()

    async def begin(number: int) -> None:
        await turns.take("ann")
        begun.append(number)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(8)]
    await asyncio.gather(*waiting)
    assert begun == [0, 1, 7, 2, 6, 3, 5, 4]
