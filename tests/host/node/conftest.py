"""One containerd for all tests here; an API server and an agent for each module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.containerd import Containerd, start_containerd
from tests.support.control import ApiUnderTest, api_server
from tests.support.node import NodeUnderTest, agent_node


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    with start_containerd(f"agent-node-{os.getpid()}") as daemon:
        yield daemon


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path / "control") as server:
        yield server


@pytest.fixture
async def node(tmp_path: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(tmp_path, containerd, server) as node:
        yield node
