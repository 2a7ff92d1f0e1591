"""When nodes are looked at: only when asked, and no more often than it takes."""

import asyncio

import pytest

from control.resource_metrics import scraper as module
from control.resource_metrics.scraper import FIRST_WINDOW, Scraper
from kube.clock import FakeClock


class Node:
    """An agent that uses one core, seen through its counter."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.looks, self.down = clock, 0, False

    async def __call__(self, name: str) -> str:
        self.looks += 1
        if self.down:
            raise ConnectionRefusedError(name)
        now = self.clock.now().timestamp()
        stamp = int(now * 1000)
        return f"node_cpu_usage_seconds_total {now} {stamp}\nnode_memory_working_set_bytes 1024 {stamp}\n"


async def ask(scraper: Scraper, clock: FakeClock) -> float | None:
    """Return the window of an answer, letting the time pass that it takes."""
    asked = asyncio.ensure_future(scraper.usage(["n"]))
    await clock.advance(FIRST_WINDOW)
    found = (await asked).get("n")
    assert found is None or (found.node is not None and found.node.cpu == pytest.approx(1.0))
    return found.node.window if found is not None and found.node is not None else None


async def test_a_node_is_looked_at_twice_at_first_and_then_once_a_period() -> None:
    clock = FakeClock()
    node = Node(clock)
    scraper = Scraper(node, clock)
    assert await ask(scraper, clock) == pytest.approx(FIRST_WINDOW)
    assert node.looks == 2
    assert await ask(scraper, clock) == pytest.approx(FIRST_WINDOW)
    assert node.looks == 2
    await clock.advance(15)
    assert await ask(scraper, clock) == pytest.approx(15 + FIRST_WINDOW)
    assert node.looks == 3


async def test_a_look_of_long_ago_is_not_measured_from() -> None:
    clock = FakeClock()
    node = Node(clock)
    scraper = Scraper(node, clock)
    await ask(scraper, clock)
    await clock.advance(module.LONGEST_WINDOW + 1)
    assert await ask(scraper, clock) == pytest.approx(FIRST_WINDOW)
    assert node.looks == 4


async def test_nobody_asks_and_nothing_is_scraped() -> None:
    clock = FakeClock()
    node = Node(clock)
    Scraper(node, clock)
    await clock.advance(3600)
    assert node.looks == 0


async def test_a_node_that_does_not_answer_is_left_out_and_not_asked_again_at_once() -> None:
    clock = FakeClock()
    node = Node(clock)
    node.down = True
    scraper = Scraper(node, clock)
    assert await ask(scraper, clock) is None
    assert await ask(scraper, clock) is None
    assert node.looks == 1
    node.down = False
    await clock.advance(module.RESOLUTION)
    assert await ask(scraper, clock) is not None


async def test_those_who_ask_at_the_same_time_share_a_look() -> None:
    clock = FakeClock()
    node = Node(clock)
    scraper = Scraper(node, clock)
    asked = [asyncio.ensure_future(scraper.usage(["n"])) for _ in range(5)]
    await clock.advance(FIRST_WINDOW)
    await asyncio.gather(*asked)
    assert node.looks == 2
