"""Slices of responses are parsed round robin over namespaces, by what they cost."""

from __future__ import annotations

import asyncio

import pytest

from netproxy.gateway.backend_connection import BackendConnection
from netproxy.gateway.cost_queue import MOST, QUANTUM, CostQueue
from netproxy.gateway.errors import BackendError
from netproxy.gateway.limits import BACKENDS
from netproxy.gateway.response_parser import ResponseParser


class Steps:
    """Steps that note in which iteration of the event loop they run."""

    def __init__(self) -> None:
        self.queue = CostQueue()
        self.iteration = 0
        self.ran: list[tuple[int, str]] = []

    def run(self, owner: str, cost: int) -> None:
        def step() -> int:
            self.ran.append((self.iteration, owner))
            return cost

        self.queue.run(owner, step)

    async def iterations(self, count: int) -> None:
        for _ in range(count):
            self.iteration += 1
            await asyncio.sleep(0)

    def in_iteration(self, number: int) -> list[str]:
        return [owner for iteration, owner in self.ran if iteration == number]


async def test_an_iteration_has_steps_up_to_its_budget_and_the_rest_later() -> None:
    steps = Steps()
    for _ in range(10):
        steps.run("a", MOST // 2)
    assert len(steps.ran) == 2

    await steps.iterations(6)
    assert len(steps.ran) == 10 and max(len(steps.in_iteration(number)) for number in range(6)) == 2


async def test_cheap_steps_of_one_owner_do_not_wait_for_all_expensive_ones_of_another() -> None:
    steps = Steps()
    for _ in range(500):
        steps.run("expensive", 200)
    for _ in range(20):
        steps.run("cheap", 16)

    await steps.iterations(12)
    cheap = [iteration for iteration, owner in steps.ran if owner == "cheap"]
    assert len(cheap) == 20 and max(cheap) <= 8
    spent = 200 * len([each for each in steps.ran[3:] if each[1] == "expensive" and each[0] <= max(cheap)])
    assert spent <= (max(cheap) + 1) * (MOST + 200)


async def test_owners_share_by_cost_and_not_by_number() -> None:
    steps = Steps()
    for _ in range(400):
        steps.run("expensive", 4 * QUANTUM)
        for _ in range(4):
            steps.run("cheap", QUANTUM)

    await steps.iterations(60)
    owners = [owner for _, owner in steps.ran]
    expensive, cheap = owners.count("expensive"), owners.count("cheap")
    assert cheap < 1600 and 2 * expensive < cheap < 8 * expensive, (expensive, cheap)


async def test_a_step_that_fails_does_not_stop_those_behind_it() -> None:
    steps = Steps()

    def fails() -> int:
        raise ValueError

    steps.run("a", MOST)
    steps.queue.run("a", fails)
    steps.run("a", 1)
    await steps.iterations(3)
    assert len(steps.ran) == 2


def test_tiny_chunks_that_wait_for_the_client_take_about_the_memory_of_their_bytes() -> None:
    parser = ResponseParser(BACKENDS, head_only=False, upgrade=False)
    parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(20):
        parser.feed(b"2\r\nab\r\n" * 2000)
    assert len(parser.parts) <= 64
    assert parser.take() == b"ab" * 40_000 and parser.buffered == 0


class Transport(asyncio.Transport):
    """A transport that only notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        pass


def connection() -> BackendConnection:
    made = BackendConnection(BACKENDS, lambda _: None, CostQueue(), "apps")
    made.connection_made(Transport())
    made.begin(b"", head_only=False, upgrade=False, body_follows=False)
    return made


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def read_all(made: BackendConnection) -> bytes:
    assert (await made.read_head()).status == 200
    found = b""
    while part := await made.read():
        found += part
    return found


async def test_nothing_is_read_while_slices_wait_for_their_turns() -> None:
    made = connection()
    made.data_received(HEAD + b"1\r\na\r\n" * 20_000)
    assert made.transport.paused  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert made.take().count(b"a") < 20_000

    async with asyncio.timeout(5):
        while made.transport.paused:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
    made.data_received(b"0\r\n\r\n")
    assert made.finish() is False, "a part of the body was not taken"


async def test_what_has_come_before_a_connection_is_lost_is_read_in_turns_too() -> None:
    for end, exc in ((b"0\r\n\r\n", ConnectionResetError()), (b"0\r\n\r\n", None)):
        made = connection()
        made.data_received(HEAD + b"1\r\na\r\n" * 20_000 + end)
        made.connection_lost(exc)
        assert not made.complete
        assert await read_all(made) == b"a" * 20_000
        assert made.finish() is False


async def test_a_response_that_is_lost_in_between_is_not_taken_for_complete() -> None:
    for exc in (ConnectionResetError(), None):
        made = connection()
        made.data_received(HEAD + b"1\r\na\r\n" * 20_000)
        made.connection_lost(exc)
        with pytest.raises(BackendError):
            await read_all(made)


async def test_a_body_until_the_end_of_the_connection_ends_after_its_last_slice() -> None:
    made = connection()
    made.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 200_000)
    made.connection_lost(None)
    assert await read_all(made) == b"a" * 200_000
