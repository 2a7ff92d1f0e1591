"""Listening sockets of a loop accept in turn, and so many connections in one iteration all together."""

import asyncio

import pytest

from kube.serving import accept_queue
from kube.serving.accept_queue import BATCH, AcceptQueue


class Listening:
    """A socket with connections in its queue; ready in every iteration until it is empty, as epoll reports it."""

    def __init__(self, queue: AcceptQueue, queued: int, accepted: list[str], name: str = "") -> None:
        self.queue, self.queued, self.accepted, self.name = queue, queued, accepted, name

    def accept(self, most: int) -> int:
        taken = min(most, self.queued)
        self.queued -= taken
        self.accepted += [self.name] * taken
        self.report()
        return taken

    def report(self) -> None:
        if self.queued:
            asyncio.get_running_loop().call_soon(self.queue.ask, self)


@pytest.mark.parametrize("sockets", [1, 3, BATCH, 1000])
async def test_one_iteration_accepts_a_batch_however_many_sockets_have_connections(sockets: int) -> None:
    queue, accepted = AcceptQueue(), list[str]()
    every = [Listening(queue, 40, accepted, str(n)) for n in range(sockets)]
    for each in every:
        each.report()
    counts = []
    while len(accepted) < 40 * sockets:
        before = len(accepted)
        await asyncio.sleep(0)
        counts.append(len(accepted) - before)
        assert len(counts) < 200 * sockets
    assert max(counts) <= 2 * BATCH  # what is left of one iteration, and all of the next


async def test_a_socket_that_has_one_connection_is_not_held_up_by_a_flood_of_the_others() -> None:
    queue, accepted = AcceptQueue(), list[str]()
    flood = [Listening(queue, 10_000, accepted, "flood") for _ in range(100)]
    one = Listening(queue, 1, accepted, "one")
    for each in (*flood, one):
        each.report()
    for _ in range(2 * len(flood)):
        await asyncio.sleep(0)
    assert accepted.count("one") == 1


async def test_a_socket_that_is_closed_accepts_no_more() -> None:
    queue, accepted = AcceptQueue(), list[str]()
    closed, other = Listening(queue, 1, accepted, "closed"), Listening(queue, 1, accepted, "other")
    queue.ask(Listening(queue, BATCH, [], "all that there is room for"))
    queue.ask(closed)
    queue.ask(other)
    queue.leave(closed)
    await asyncio.sleep(0)
    assert accepted == ["other"]


async def test_all_sockets_of_a_loop_share_its_turns() -> None:
    loop = asyncio.get_running_loop()
    assert accept_queue.of_loop(loop) is accept_queue.of_loop(loop)
