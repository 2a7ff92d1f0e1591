"""Tests of the controller, which runs as a task beside them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wherry.testing import AsyncCluster

sys.path.insert(0, str(Path(__file__).parent))
import labeller


@pytest.fixture
async def cluster() -> AsyncIterator[AsyncCluster]:
    async with AsyncCluster(nodes=1) as found:
        task = asyncio.create_task(labeller.run(str(found.kubeconfig)))
        yield found
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_node_with_a_gpu_gets_the_label(cluster: AsyncCluster) -> None:
    await cluster.add_node("gpu-1", capacity={labeller.RESOURCE: "2"})
    await cluster.wait("node/gpu-1", "metadata.labels.gpu=yes")
    assert "gpu" not in (await cluster.get("node/node-1"))["metadata"]["labels"]


async def test_a_label_that_somebody_removes_comes_back(cluster: AsyncCluster) -> None:
    await cluster.add_node("gpu-1", capacity={labeller.RESOURCE: "2"})
    await cluster.wait("node/gpu-1", "metadata.labels.gpu=yes")
    before = (await cluster.get("node/gpu-1"))["metadata"]["resourceVersion"]
    await cluster.patch("node/gpu-1", {"metadata": {"labels": {"gpu": None}}})
    await cluster.wait(
        "node/gpu-1",
        lambda node: node["metadata"]["resourceVersion"] != before and node["metadata"]["labels"].get("gpu") == "yes",
    )
