"""Selection of the cgroup driver: from the runtime, else from the configuration."""

from __future__ import annotations

import pytest

from agent.config import AgentConfig
from agent.preconditions import cgroup_driver
from cri.client import Client
from cri.fake import FakeRuntime


@pytest.mark.parametrize(
    ("reported", "configured", "found"),
    [("systemd", "cgroupfs", "systemd"), ("cgroupfs", "systemd", "cgroupfs"), ("", "systemd", "systemd")],
)
async def test_the_runtimes_word_counts(runtime: FakeRuntime, reported: str, configured: str, found: str) -> None:
    runtime.containers.cgroup_driver = reported
    async with Client(runtime.endpoint) as client:
        assert await cgroup_driver(AgentConfig(node_name="n", cgroup_driver=configured), client) == found
