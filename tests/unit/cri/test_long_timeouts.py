"""Timeouts that a pod's author or a client chooses: any 64-bit number, while gRPC's deadlines end in the year 2262."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from cri.channel import Channel
from cri.messages import ExecSyncResponse
from cri.runtime_service import LONGEST_SECONDS, RuntimeService


class Recording:
    """A channel that records timeouts in requests, and deadlines."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float | None]] = []

    async def unary(self, _: str, request: Any, answer: type[Any], deadline: float | None, *__: Any) -> Any:
        self.calls.append((request.timeout, deadline))
        return answer()

    async def unary_in_turn(
        self, _: str, request: Any, __: type[Any], deadline: float | None, turn: Any, shorten: Callable[[Any], Any]
    ) -> Any:
        self.calls.append((request.timeout, deadline))
        async with contextlib.nullcontext(), turn:
            return shorten(ExecSyncResponse())


@pytest.mark.parametrize("seconds", [8_000_000_000, 2**63 - 1, 2**63, 10**19 - 1])
async def test_a_longer_timeout_is_ten_years(seconds: int) -> None:
    channel = Recording()
    runtime = RuntimeService(cast(Channel, channel), 120.0, cast(Channel, channel))
    await runtime.stop_container("c", seconds)
    await runtime.checkpoint_container("c", "/checkpoint.tar", seconds)
    await runtime.exec_sync("c", ["true"], seconds)
    assert channel.calls == [(LONGEST_SECONDS, LONGEST_SECONDS + 120.0)] * 3


async def test_a_usual_timeout_is_passed_on() -> None:
    channel = Recording()
    runtime = RuntimeService(cast(Channel, channel), 120.0, cast(Channel, channel))
    await runtime.stop_container("c", 30)
    await runtime.exec_sync("c", ["true"], 0)
    assert channel.calls == [(30, 150.0), (0, None)]
