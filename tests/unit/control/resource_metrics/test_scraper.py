"""Scrapes of nodes: only on request, and not before the last result is too old."""

import asyncio

import pytest

from control.resource_metrics import scraper as module
from control.resource_metrics.scraper import FIRST_WINDOW, Scraper
from tests.support.clock import FakeClock


class Node:
    """An agent that uses one core, seen through its counter."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.looks, self.down = clock, 0, False
        self.ahead = 0.0
        """Seconds by which the node's clock is ahead."""

    async def __call__(self, name: str) -> str:
        self.looks += 1
        if self.down:
            raise ConnectionRefusedError(name)
        stamp = int((self.clock.now().timestamp() + self.ahead) * 1000)
        return f"node_cpu_usage_seconds_total {self.clock.monotonic()} {stamp}\nnode_memory_working_set_bytes 1024 {stamp}\n"


async def ask(scraper: Scraper, clock: FakeClock) -> float | None:
    """Return the window of an answer, letting the time pass that it takes."""
    requested = asyncio.ensure_future(scraper.usage(["n"]))
    await clock.advance(FIRST_WINDOW)
    found = (await requested).get("n")
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


async def test_a_node_whose_clock_was_set_back_is_measured_from_there() -> None:
    clock = FakeClock()
    node = Node(clock)
    scraper = Scraper(node, clock)
    await ask(scraper, clock)
    await clock.advance(15)
    node.ahead = -3600.0
    assert await ask(scraper, clock) == pytest.approx(FIRST_WINDOW)
    await clock.advance(15)
    assert await ask(scraper, clock) == pytest.approx(15)


async def test_without_requests_nothing_is_scraped() -> None:
    clock = FakeClock()
    node = Node(clock)
    Scraper(node, clock)
    await clock.advance(3600)
    assert node.looks == 0


async def test_an_unreachable_node_is_left_out_and_not_scraped_again_at_once() -> None:
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


async def test_simultaneous_requests_share_one_check() -> None:
    clock = FakeClock()
    node = Node(clock)
    scraper = Scraper(node, clock)
    requested = [asyncio.ensure_future(scraper.usage(["n"])) for _ in range(5)]
    await clock.advance(FIRST_WINDOW)
    await asyncio.gather(*requested)
    assert node.looks == 2
