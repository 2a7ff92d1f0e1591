"""Places that owners share fairly, and reviews that take them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kube.fair_places import FairPlaces, NoPlace
from kube.reviews import Reviews


class Work:
    """Work that holds places until it is released; `order` are the owners in the order in which they had places."""

    def __init__(self, places: FairPlaces) -> None:
        self.places, self.order, self.held = places, list[str](), 0
        self.go_on = asyncio.Semaphore(0)
        self.tasks: list[asyncio.Task[None]] = []

    async def _work(self, owner: str) -> None:
        async with self.places.place(owner):
            self.order.append(owner)
            self.held += 1
            try:
                await self.go_on.acquire()
            finally:
                self.held -= 1

    async def start(self, owner: str, number: int = 1) -> list[asyncio.Task[None]]:
        started = [asyncio.create_task(self._work(owner)) for _ in range(number)]
        self.tasks += started
        await settle()
        return started

    async def finish(self, number: int = 1) -> None:
        for _ in range(number):
            self.go_on.release()
            await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_owner_has_a_part_of_the_places_and_others_do_not_wait_for_it() -> None:
    work = Work(FairPlaces(4, 2, 100, 3600))
    await work.start("flood", 50)
    assert work.order == ["flood"] * 2 and work.places.waiting("flood") == 48
    await work.start("ann")
    await work.start("bob")
    assert work.order[2:] == ["ann", "bob"] and work.held == 4
    await work.finish(48 + 4)
    assert len(work.order) == 52 and not work.places._owners and not work.places._line
    assert work.places._free == 4


async def test_those_who_wait_have_places_in_round_robin_over_owners() -> None:
    work = Work(FairPlaces(1, 1, 100, 3600))
    await work.start("flood", 5)
    await work.start("ann", 2)
    await work.start("bob", 1)
    await work.finish(8)
    assert work.order == ["flood", "flood", "ann", "bob", "flood", "ann", "flood", "flood"]


async def test_of_one_owner_only_so_many_wait() -> None:
    work = Work(FairPlaces(2, 1, 3, 3600))
    await work.start("flood", 4)
    with pytest.raises(NoPlace, match="3 requests of 'flood' wait already"):
        async with work.places.place("flood"):
            pass
    await work.start("ann")
    assert work.order == ["flood", "ann"]
    await work.finish(5)


async def test_who_waits_too_long_has_no_place_and_takes_none() -> None:
    work = Work(FairPlaces(1, 1, 3, 0))
    await work.start("ann")
    with pytest.raises(NoPlace, match="no place became free within 0 s"):
        async with work.places.place("bob"):
            pass
    await work.finish()
    assert (work.places._free, work.places._owners, work.places._line) == (1, {}, {})


@pytest.mark.parametrize(
    "given", [False, True], ids=["while it waits", "in the iteration in which it is given its place"]
)
async def test_a_place_whose_waiter_is_cancelled_is_the_next_ones(given: bool) -> None:
    work = Work(FairPlaces(1, 1, 3, 3600))
    await work.start("ann")
    (first,) = await work.start("bob")
    await work.start("cid")
    if given:
        work.go_on.release()
        while work.places.waiting("bob"):
            await asyncio.sleep(0)
    first.cancel()
    await work.finish(1 if given else 2)
    assert work.order == ["ann", "cid"] and first.cancelled()
    await work.finish()
    assert (work.places._free, work.places._owners, work.places._line) == (1, {}, {})


async def test_a_waiter_that_comes_while_another_of_its_owner_is_cancelled_is_not_lost() -> None:
    work = Work(FairPlaces(1, 1, 3, None))
    await work.start("ann")
    (first,) = await work.start("bob")
    await work.start("cid")
    work.go_on.release()  # in the next iteration ann leaves, then bob comes again, then his first request is cancelled
    again = asyncio.create_task(work._work("bob"))
    first.cancel()
    for _ in range(20):
        work.go_on.release()
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await again
    assert (work.places._free, work.places._owners, work.places._line) == (1, {}, {})


class Server:
    """Answers reviews when it is released, and counts what it was sent."""

    def __init__(self, places: FairPlaces) -> None:
        self.reviews: Reviews[str] = Reviews(places)
        self.sent, self.known = list[str](), dict[str, str]()
        self.held = asyncio.Event()
        self.wanted: list[Callable[[], bool]] = []

    def ask(self, owner: str, question: str) -> asyncio.Task[str]:
        async def send(wanted: Callable[[], bool]) -> str:
            self.sent.append(question)
            self.wanted.append(wanted)
            await self.held.wait()
            self.known[question] = question.upper()
            return self.known[question]

        asking = self.reviews.ask(owner, question.encode(), lambda: self.known.get(question), send)
        return asyncio.create_task(asking)


async def test_equal_questions_are_sent_once_and_take_one_place_of_each_owner() -> None:
    server = Server(FairPlaces(4, 1, 1, 3600))
    asked = [server.ask(owner, "a") for owner in ("ann", "bob") for _ in range(5)]
    await settle()
    assert server.sent == ["a"]
    server.held.set()
    assert await asyncio.gather(*asked) == ["A"] * 10
    assert not server.reviews._reviews and not server.reviews._sent


async def test_an_answer_that_came_while_a_question_waited_is_not_asked_for_again() -> None:
    server = Server(FairPlaces(1, 1, 5, 3600))
    asked = [server.ask("ann", "a"), server.ask("bob", "a"), server.ask("ann", "b")]
    await settle()
    server.held.set()
    assert await asyncio.gather(*asked) == ["A", "A", "B"] and server.sent == ["a", "b"]


async def test_a_question_that_nobody_waits_for_is_not_sent_and_one_that_was_sent_is_completed() -> None:
    server = Server(FairPlaces(1, 1, 5, 3600))
    first, second, third = server.ask("ann", "a"), server.ask("ann", "b"), server.ask("ann", "c")
    again = server.ask("ann", "b")
    await settle()
    assert server.wanted[0]()
    for task in (first, second, third):
        task.cancel()
    await settle()
    assert server.sent == ["a"] and not server.wanted[0](), "it is not retried"
    server.held.set()
    assert await again == "B"
    await settle()
    assert server.sent == ["a", "b"] and server.known == {"a": "A", "b": "B"}
    assert not server.reviews._reviews and not server.reviews.places._owners


async def test_a_question_is_asked_again_after_its_only_waiter_left_the_line() -> None:
    server = Server(FairPlaces(1, 1, 5, 3600))
    first, second = server.ask("ann", "a"), server.ask("ann", "b")
    await settle()
    second.cancel()
    third = server.ask("ann", "b")
    server.held.set()
    assert [await first, await third] == ["A", "B"]


async def test_all_that_share_a_failure_get_it() -> None:
    reviews: Reviews[str] = Reviews(FairPlaces(1, 1, 5, 3600))

    async def fail(wanted: Callable[[], bool]) -> str:
        await asyncio.sleep(0)
        raise ValueError("no")

    asked = [asyncio.create_task(reviews.ask(owner, b"a", lambda: None, fail)) for owner in ("ann", "ann", "bob")]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(result) for result in results] == ["no"] * 3


async def test_closing_cancels_what_is_in_line_and_under_way() -> None:
    server = Server(FairPlaces(1, 1, 5, 3600))
    asked = [server.ask("ann", "a"), server.ask("ann", "b")]
    await settle()
    await server.reviews.close()
    for task in asked:
        with pytest.raises(NoPlace, match="reviews have ended"):
            await task
    assert server.sent == ["a"] and not server.reviews._reviews and not server.reviews.places._owners
