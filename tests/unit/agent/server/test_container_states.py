"""Followers of a log ask the runtime together, and for a state, not for a whole status."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from agent.server.container_states import AT_ONCE, ContainerStates
from cri.errors import UnavailableError
from cri.messages import Container, ContainerState
from cri.runtime_service import RuntimeService


class Lists:
    """Holds its answers back until `answer` is set."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.answer = asyncio.Event()
        self.away = False

    async def list_containers(self, *, container_id: str) -> list[Container]:
        self.asked.append(container_id)
        await self.answer.wait()
        if self.away:
            raise UnavailableError("away", code="UNAVAILABLE")
        state = ContainerState.CONTAINER_RUNNING if container_id.startswith("r") else ContainerState.CONTAINER_EXITED
        return [Container(id=container_id, state=state)] if container_id != "gone" else []


def made() -> tuple[Lists, ContainerStates]:
    lists = Lists()
    return lists, ContainerStates(cast(RuntimeService, cast(Any, lists)))


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_all_who_follow_a_log_ask_once() -> None:
    lists, states = made()
    asking = [asyncio.create_task(states.running("r1")) for _ in range(100)]
    await settled()
    asking[0].cancel()
    lists.answer.set()
    assert await asyncio.gather(*asking[1:]) == [True] * 99
    assert lists.asked == ["r1"]
    assert await states.running("r1") and lists.asked == ["r1", "r1"], "the answer is not kept"
    with pytest.raises(asyncio.CancelledError):
        await asking[0]


async def test_a_few_containers_are_asked_about_at_a_time() -> None:
    lists, states = made()
    asking = [asyncio.create_task(states.running(f"r{number}")) for number in range(100)]
    await settled()
    assert len(lists.asked) == AT_ONCE
    lists.answer.set()
    assert all(await asyncio.gather(*asking)) and len(lists.asked) == 100


@pytest.mark.parametrize(("container", "away"), [("ended", False), ("gone", False), ("r1", True)])
async def test_a_container_that_does_not_run_or_of_which_nothing_is_known_is_followed_no_longer(
    container: str, away: bool
) -> None:
    lists, states = made()
    lists.away = away
    lists.answer.set()
    assert not await states.running(container)
