"""Places of questions that wait for the host's resolvers: the client with the most loses its oldest."""

import asyncio

from netproxy.dns.waiting_queries import WaitingQueries
from tests.support.hollow import eventually


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_full_table_drops_the_oldest_question_of_the_client_with_the_most() -> None:
    waiting = WaitingQueries(most=6, most_of_client=4)
    tasks = {
        f"{client}{n}": waiting.start(client, forever()) for client, count in (("a", 2), ("b", 4)) for n in range(count)
    }
    assert waiting.start("b", forever()) is None  # a client's own limit
    tasks["c0"] = waiting.start("c", forever())
    tasks["c1"] = waiting.start("c", forever())
    await asyncio.sleep(0)
    assert [name for name, task in tasks.items() if task and task.cancelled()] == ["b0", "b1"]
    tasks["c2"] = waiting.start("c", forever())  # all have as many: of its own
    await asyncio.sleep(0)
    assert [name for name, task in tasks.items() if task and task.cancelled()] == ["b0", "b1", "c0"]
    assert len(waiting) == 6
    waiting.close()
    await eventually(lambda: len(waiting) == 0 and not waiting._clients)
