"""An agent between a real API server and the fake runtime, with time running fast."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cri.fake import FakeRuntime
from tests.support.control import ApiUnderTest, api_server
from tests.support.fake_node import SPEED
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import FastClock, NodeUnderTest, agent_node


@pytest.fixture
def clock() -> FastClock:
    return FastClock(SPEED)


@pytest.fixture
async def runtime(tmp_path: Path, clock: FastClock) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(tmp_path / "runtime.sock", clock.sleep, clock.nanoseconds) as runtime:
        runtime.images.add(BUSYBOX_IMAGE)
        yield runtime


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path / "control") as server:
        yield server


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(tmp_path, runtime, api, clock=clock) as node:
        yield node
