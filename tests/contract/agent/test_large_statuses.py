"""Containers' statuses of megabytes are received a few at a time, whoever asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cri.client import Client
from cri.errors import NotFoundError
from cri.messages import api
from cri.runtime_service import STATUSES

MANY = 20


class Runtime:
    """Begins to answer all requests at once; `sent` are the statuses that were sent to their end."""

    def __init__(self) -> None:
        self.together = asyncio.Barrier(MANY)
        self.sent = 0

    async def container_status(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        if request.container_id == "gone":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        if request.container_id == "large":
            await self.together.wait()
        status = api.ContainerStatusResponse()
        status.status.id = request.container_id
        status.status.message = "x" * (1 << 20)
        yield status.SerializeToString()
        self.sent += 1


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    found = Runtime()
    server = grpc.aio.server()
    handler = grpc.unary_stream_rpc_method_handler(
        found.container_status, request_deserializer=api.ContainerStatusRequest.FromString
    )
    service = "runtime.v1.RuntimeService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ContainerStatus": handler}),))
    server.add_insecure_port(f"unix://{tmp_path}/s")
    await server.start()
    yield found
    await server.stop(None)


async def test_statuses_wait_in_the_runtime_until_it_is_their_turn(tmp_path: Path, runtime: Runtime) -> None:
    async with Client(f"{tmp_path}/s") as client:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(STATUSES):
                await client.runtime._statuses.acquire()
            asked = [tasks.create_task(client.runtime.container_status("large")) for _ in range(MANY)]
            await asyncio.sleep(0.5)
            assert not any(task.done() for task in asked)
            for _ in range(STATUSES):
                client.runtime._statuses.release()
        assert {task.result().id for task in asked} == {"large"} and runtime.sent == MANY


async def test_a_status_that_is_not_there_is_an_error_and_keeps_no_turn(tmp_path: Path, runtime: Runtime) -> None:
    async with Client(f"{tmp_path}/s") as client:
        for _ in range(STATUSES + 1):
            with pytest.raises(NotFoundError, match="no such container"):
                await client.runtime.container_status("gone")
        assert (await client.runtime.container_status("small")).id == "small"
