"""Writes that are carried out to their end: until their first effect their steps have the limit of their request."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from control.registry.outcome import carry_out
from kube import step_limit
from kube.step_limit import Limit, StepTooLong, limited, sampling
from kube.step_shares import Shares
from tests.unit.control.registry.services import Cluster, allocator, named

SECONDS = 0.2


def endless(*_: Any) -> None:
    while True:
        pass


async def requested(shares: Shares, work: Coroutine[Any, Any, Any]) -> Any:
    """Carry out a write for a request of ann's."""
    registry: Any = SimpleNamespace(unfinished=set())

    async def request() -> Any:
        return await carry_out(registry, work)

    with sampling():
        return await limited(request(), Limit(shares, "ann"))


async def test_a_write_that_holds_the_loop_before_its_first_effect_is_stopped_and_charged() -> None:
    shares = Shares("test", SECONDS, 0.5, 60.0)

    async def work() -> None:
        await asyncio.sleep(0)
        endless()

    with pytest.raises(StepTooLong):
        await requested(shares, work())
    assert shares.delay("ann") > 0 and not shares.delay("bob")


async def test_the_choice_of_a_services_families_is_stopped_and_nothing_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, shares = allocator(), Shares("test", SECONDS, 0.5, 60.0)
    monkeypatch.setattr(found.addresses, "choose_families", endless)
    with pytest.raises(StepTooLong):
        await requested(shares, found.allocate(named("a"), None, Cluster()))
    assert found._pending == []
    monkeypatch.undo()
    assert await found.allocate(named("a"), None, Cluster()) is not None


async def test_a_write_that_has_had_an_effect_is_charged_and_goes_on_to_its_end() -> None:
    shares, done = Shares("test", SECONDS, 0.5, 60.0), list[str]()

    async def work() -> None:
        step_limit.complete()
        limit = step_limit._current.limit
        assert limit is not None
        for now in (1.0, 2.0, 3.0):  # samples of one step, which would be stopped at the second
            limit.sample(now)
        await asyncio.sleep(0)
        done.append("done")

    await requested(shares, work())
    assert done == ["done"]
    assert shares.delay("ann") > 0
