"""Tokens in pods' volumes while the wall clock is set and the machine suspended."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from agent.pods.clock_steps import ClockSteps
from agent.volumes.tokens import TokenCache
from kube import serialize
from kube.api import authentication_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import format_time
from tests.support.clock import FakeClock

POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="web", namespace="shop", uid="uid"))
SOURCE = core_v1.ServiceAccountTokenProjection(path="token", expiration_seconds=3600)
HOUR, TEN_YEARS = 3600.0, 10 * 365.25 * 86_400


class Server:
    """Issues tokens by the wall clock, each with a number."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.issued = clock, 0

    async def post(self, *arguments: Any) -> bytes:
        self.issued += 1
        expires = format_time(self.clock.now() + timedelta(hours=1))
        status = authentication_v1.TokenRequestStatus(token=f"t{self.issued}", expiration_timestamp=expires)
        return serialize.encode_readable(authentication_v1.TokenRequest(status=status))


@pytest.mark.parametrize("step", [HOUR, -HOUR, TEN_YEARS, -TEN_YEARS])
async def test_a_token_of_before_the_clock_was_set_is_renewed(step: float) -> None:
    clock = FakeClock()
    tokens = TokenCache(cast(Client, Server(clock)), clock=clock)
    assert (await tokens.get(POD, SOURCE)).text == "t1"
    clock.step(step)
    assert (await tokens.get(POD, SOURCE)).text == "t2"
    clock.step(-step)
    assert (await tokens.get(POD, SOURCE)).text == "t3"
    clock.step(5.0)
    await clock.advance(60)
    assert (await tokens.get(POD, SOURCE)).text == "t3", "it was corrected by some seconds"


async def test_steps_of_the_clock_and_suspends_are_detected_and_corrections_are_not() -> None:
    clock, found = FakeClock(), list[float]()
    following = asyncio.create_task(ClockSteps(clock, lambda: found.append(clock.monotonic())).run())
    await clock.advance(100)
    clock.step(3.0)
    await clock.advance(100)
    assert found == []
    clock.suspend(HOUR)
    await clock.advance(15)
    clock.step(-TEN_YEARS)
    await clock.advance(15)
    assert found == [210, 220]
    following.cancel()
    await asyncio.wait({following})
