"""Seats, queues and turns of a priority level."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from control.fairness.fairness import Fairness
from control.fairness.level import IDLE_QUEUES, PriorityLevel, Refused
from control.fairness.waiting_levels import WaitingLevels
from control.fairness.wide_requests import WideRequests

NEVER = 30.0


def level(
    seats: int = 1, queues: int = 8, hand: int = 2, length: int = 3, borrow: int = 0, wide: WideRequests | None = None
) -> PriorityLevel:
    queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": length}
    response: dict[str, Any] = {"type": "Queue", "queuing": queuing} if queues else {"type": "Reject"}
    config = {"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"limitResponse": response}}}

    def may_borrow(requesting: PriorityLevel, width: int) -> bool:
        return requesting.executing + width <= seats + borrow

    return PriorityLevel(config, seats, wide or WideRequests(), WaitingLevels(), may_borrow)


async def turn(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_finds_no_seat_waits_until_one_is_given_back() -> None:
    busy = level()
    assert busy.enter(1) and not busy.enter(1)
    waiting = asyncio.create_task(busy.wait((0, 1), 1, NEVER))
    await turn()
    assert not waiting.done() and busy.waiting == 1
    busy.leave(1)
    await waiting
    assert busy.executing == 1 and busy.waiting == 0
    assert not busy.enter(1), "the seat went to the one who had waited"


async def test_seats_that_others_lend_are_taken() -> None:
    borrowing = level(seats=1, borrow=1)
    assert borrowing.enter(1) and borrowing.enter(1) and not borrowing.enter(1)


async def test_a_full_queue_refuses_with_retry_after() -> None:
    busy = level(length=1, queues=1, hand=1)
    busy.enter(1)
    first = asyncio.create_task(busy.wait((0,), 1, NEVER))
    await turn()
    with pytest.raises(Refused) as refused:
        await busy.wait((0,), 1, NEVER)
    assert refused.value.code == 429 and refused.value.why == "queue-full"
    assert refused.value.details["retryAfterSeconds"] == 1
    busy.leave(1)
    await first


async def test_a_level_without_queues_refuses_at_once() -> None:
    busy = level(queues=0)
    assert busy.enter(1) and not busy.enter(1)
    with pytest.raises(Refused) as refused:
        await busy.wait((0,), 1, NEVER)
    assert refused.value.why == "concurrency-limit"


async def test_patience_ends_and_leaves_nothing_behind() -> None:
    busy = level()
    busy.enter(1)
    with pytest.raises(Refused) as refused:
        await busy.wait((0,), 1, 0.01)
    assert refused.value.why == "time-out" and busy.waiting == 0
    busy.leave(1)
    assert busy.enter(1)


async def test_who_gives_up_does_not_keep_a_seat() -> None:
    busy = level()
    busy.enter(1)
    waiting = asyncio.create_task(busy.wait((0,), 1, NEVER))
    await turn()
    busy.leave(1)  # seated, but its task has not run yet
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert busy.executing == 0 and busy.waiting == 0


async def test_a_flow_that_floods_its_queues_does_not_hold_up_another() -> None:
    busy = level(length=50)
    busy.enter(1)
    order: list[str] = []

    async def request(name: str, hand: tuple[int, ...]) -> None:
        await busy.wait(hand, 1, NEVER)
        order.append(name)
        busy.leave(1)

    flood = [asyncio.create_task(request("flood", (0, 1))) for _ in range(40)]
    await turn()
    quiet = [asyncio.create_task(request("quiet", (2, 3))) for _ in range(2)]
    await turn()
    busy.leave(1)
    await asyncio.gather(*flood, *quiet)
    assert {i for i, name in enumerate(order) if name == "quiet"} < set(range(6)), order


async def test_one_wide_request_is_begun_a_turn_of_the_loop() -> None:
    wide = WideRequests()
    levels = [level(seats=100, wide=wide), level(seats=100, wide=wide)]
    begun: list[int] = []

    async def lists(number: int) -> None:
        assert not levels[number].enter(10)
        await levels[number].wait((0,), 10, NEVER)
        begun.append(number)
        levels[number].leave(10)

    work = [asyncio.create_task(lists(n)) for n in (0, 0, 0, 1, 1, 1)]
    counts = []
    for _ in range(30):
        counts.append(len(begun))
        await turn()
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(counts)), counts
    await asyncio.gather(*work)
    assert begun.index(1) <= 2, "levels take turns"


async def test_narrow_requests_pass_wide_ones_that_wait_for_their_turn() -> None:
    wide = WideRequests()
    lists, leases = level(seats=100, wide=wide), level(seats=10, wide=wide)
    waiting = [asyncio.create_task(lists.wait((0,), 10, NEVER)) for _ in range(3)]
    await turn()
    assert leases.enter(1), "a lease has no queue to stand in"
    await asyncio.gather(*waiting)


async def test_a_request_that_is_cancelled_as_a_seat_is_given_back_keeps_none() -> None:
    """Its client closes the connection, or its time ends, in the same iteration of the event loop."""
    busy = level()
    assert busy.enter(1)
    cancelled = asyncio.create_task(busy.wait((0,), 1, 5))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(busy.wait((1,), 1, 5))
    await asyncio.sleep(0)
    cancelled.cancel()
    busy.leave(1)
    await asyncio.gather(cancelled, return_exceptions=True)
    assert cancelled.cancelled() and busy.executing == 1
    await waiting
    busy.leave(1)
    assert busy.enter(1) and busy.waiting == 0


async def test_a_wide_request_takes_the_last_seat_rather_than_wait_for_ever() -> None:
    small = level(seats=2)
    assert small.enter(1)
    await small.wait((0,), 10, NEVER)
    assert small.executing == 11 and not small.enter(1)
    small.leave(10)
    assert small.enter(1)


def limited(name: str, shares: int, lendable: int, queues: int = 1) -> dict[str, Any]:
    queuing = {"queues": queues, "handSize": 1, "queueLengthLimit": 50}
    response = {"type": "Queue", "queuing": queuing}
    part = {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": part}}


async def test_seats_that_another_level_gives_back_are_lent_to_those_who_wait() -> None:
    fairness = Fairness(10, NEVER)
    fairness.configure([], [limited("lent", 100, 100), limited("a", 1, 0), limited("b", 1, 0)])
    lent = fairness.levels["lent"]
    borrowers = [fairness.levels["a"], fairness.levels["b"]]
    for borrower in borrowers:
        while borrower.executing < borrower.nominal:
            assert borrower.enter(1)
    while lent.executing < lent.nominal:
        assert lent.enter(1)
    waiting = [asyncio.create_task(each.wait((0,), 1, NEVER)) for each in borrowers for _ in range(2)]
    await turn()
    assert [each.waiting for each in borrowers] == [2, 2]
    while not any(each.waiting < 2 for each in borrowers):
        lent.leave(1)
    first = [each.waiting for each in borrowers]
    lent.leave(1)
    assert sorted(first) == [1, 2] and [each.waiting for each in borrowers] == [1, 1], "they take turns"
    while lent.executing:
        lent.leave(1)
    await turn(2)
    assert all(each.done() for each in waiting)


async def test_seats_of_a_new_configuration_are_lent_at_once() -> None:
    fairness = Fairness(10, NEVER)
    busy, small = limited("busy", 100, 0), limited("small", 1, 0)
    fairness.configure([], [busy, small])
    level_ = fairness.levels["small"]
    while level_.enter(1):
        pass
    waiting = asyncio.create_task(level_.wait((0,), 1, NEVER))
    await turn()
    assert not waiting.done(), "what is reserved and not used is lent to nobody"
    fairness.configure([], [limited("busy", 100, 100), small])
    await turn(2)
    assert waiting.done()


async def test_queues_are_made_when_they_are_waited_in_and_forgotten_when_there_are_many() -> None:
    busy = level(queues=10_000_000, hand=2)
    assert len(busy.lines) == 0 and busy.queues == 10_000_000
    hand = busy.hand("a flow")
    assert len(set(hand)) == 2 and all(0 <= card < busy.queues for card in hand)
    busy.enter(1)
    for number in range(2 * IDLE_QUEUES):
        waiting = asyncio.create_task(busy.wait((number,), 1, NEVER))
        await turn()
        busy.leave(1)
        await waiting
    assert len(busy.lines) <= IDLE_QUEUES + 1


@pytest.mark.parametrize("queues", [2, 8, 64])
def test_a_hand_has_different_queues_and_all_queues_are_dealt(queues: int) -> None:
    dealt = level(queues=queues, hand=2)
    hands = [dealt.hand(f"flow {number}") for number in range(50 * queues)]
    assert all(len(set(hand)) == 2 for hand in hands)
    assert {card for hand in hands for card in hand} == set(range(queues))
