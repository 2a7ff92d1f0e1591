"""Network plugins that hang: making and stopping sandboxes of some pods takes minutes, and other pods come and go meanwhile."""

from __future__ import annotations

import asyncio
import os

import pytest

from agent import limiter
from cri.fake import FakeRuntime
from tests.support.fake_node import SPEED, calls, create
from tests.support.node import NodeUnderTest

HUNG_SECONDS = 12.0
"""Time that a hung call takes; of the machine's time."""
HUNG = 2 * max(4, 2 * (os.cpu_count() or 1))
"""Twice as many as there are places for calls."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "SLOT_SECONDS", 0.1, raising=False)


async def hangs(runtime: FakeRuntime, rpc: str, begun: int) -> None:
    """Wait until some calls are under way, and let later ones of that kind be quick."""
    async with asyncio.timeout(30):
        while len(calls(runtime, rpc)) < begun:
            await asyncio.sleep(0.01)
    runtime.failures.delay(rpc, 0)


async def test_sandboxes_that_hang_while_they_are_made_hold_up_no_other_pod(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.delay("RunPodSandbox", HUNG_SECONDS * SPEED)
    for number in range(HUNG):
        await create(node, f"hung-{number}")
    await hangs(runtime, "RunPodSandbox", HUNG)
    async with asyncio.timeout(HUNG_SECONDS / 2):
        await create(node, "good")
        await node.ready("good")
        await node.delete("good")
        await node.gone("good")


async def test_sandboxes_that_hang_while_they_are_stopped_hold_up_no_other_pod(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    for number in range(HUNG):
        await create(node, f"hung-{number}")
    for number in range(HUNG):
        await node.ready(f"hung-{number}")
    runtime.failures.delay("StopPodSandbox", HUNG_SECONDS * SPEED)
    for number in range(HUNG):
        await node.delete(f"hung-{number}")
    await hangs(runtime, "StopPodSandbox", HUNG)
    async with asyncio.timeout(HUNG_SECONDS / 2):
        await create(node, "good")
        await node.ready("good")
        await node.delete("good")
        await node.gone("good")
