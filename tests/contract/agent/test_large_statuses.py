"""Containers with statuses of almost 16 MiB that are read for many pods at the same time."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.record_reads import RecordReads
from cri.client import Client
from cri.messages import api
from tests.support.answering_runtime import answering_runtime
from tests.support.hollow import eventually

GROUPS = 3_900_000
AT_ONCE = 16
GONE = "gone"


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[str]:
    """A runtime with containers whose users are in millions of groups ("large", answered together), or in one."""
    small, large = api.ContainerStatusResponse(), api.ContainerStatusResponse()
    small.status.id = large.status.id = "c"
    small.status.user.linux.supplemental_groups.append(1)
    large.status.user.linux.supplemental_groups.extend(range(1 << 21, (1 << 21) + GROUPS))
    answers = {"small": small.SerializeToString(), "large": large.SerializeToString()}
    together = asyncio.Barrier(AT_ONCE)

    async def container_status(request: Any, context: Any) -> bytes:
        if request.container_id == GONE:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        if request.container_id == "large":
            await together.wait()
        return answers[request.container_id]

    async with answering_runtime(tmp_path, "ContainerStatus", api.ContainerStatusRequest, container_status) as path:
        yield path


CLIENT = """
import asyncio, json, resource, sys
from tests.contract.agent import test_large_statuses as test

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

async def main():
    async with test.Client(sys.argv[1]) as client:
        reads = test.RecordReads(client.runtime)
        await reads.container("small", "s")
        before = peak()
        found = await asyncio.gather(*(reads.container("large", f"s{n}") for n in range(test.AT_ONCE)))
        print(json.dumps([peak() - before, [record.id for record in found]]))

asyncio.run(main())
"""


async def test_large_statuses_of_many_pods_take_the_memory_of_a_few(endpoint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, endpoint, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    mebibytes, found = json.loads(output)
    assert found == ["c"] * AT_ONCE
    assert mebibytes < 250  # all together take 1 GiB


async def test_the_turn_is_free_after_each_read(endpoint: str) -> None:
    async with Client(endpoint) as client:
        reads = RecordReads(client.runtime)
        for _ in range(3):
            assert await reads.container(GONE, "s") is None
            record = await reads.container("small", "s")
            assert record is not None and record.user == (0, 0, (1,))


async def test_a_small_status_waits_for_one_of_each_other_namespace_at_most(endpoint: str) -> None:
    ended: list[str] = []

    async with Client(endpoint) as client:
        reads = RecordReads(client.runtime)

        async def read(container: str, sandbox: str, namespace: str) -> None:
            await reads.container(container, sandbox, namespace)
            ended.append(namespace)

        def waiting(count: int) -> bool:
            return sum(map(len, reads._turns._waiters._queues.values())) == count

        async with asyncio.TaskGroup() as tasks:
            async with reads._turns.slot("held"):
                for number in range(AT_ONCE):
                    tasks.create_task(read("large", f"s{number}", "many"))
                await eventually(lambda: waiting(AT_ONCE))
                tasks.create_task(read("small", "s", "other"))
                await eventually(lambda: waiting(AT_ONCE + 1))
                assert not ended
    assert ended.index("other") <= 1
