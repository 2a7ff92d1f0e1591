"""Probes while a pod's containers are being stopped: a real API server and a fake runtime, with time running fast."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from cri.fake import FakeRuntime
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest, eventually, is_ready


class Probed:
    """An HTTP server that the probes ask: by path, the status that it answers with and the requests so far."""

    def __init__(self) -> None:
        self.statuses = {"/ready": 200, "/live": 200}
        self.requests: list[str] = []
        self.port = 0

    def probe(self, path: str) -> dict[str, Any]:
        handler = {"host": "127.0.0.1", "port": self.port, "path": path}
        return {"httpGet": handler, "periodSeconds": 1, "failureThreshold": 1}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.requests.append(path)
        writer.write(f"HTTP/1.1 {self.statuses[path]} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def probed() -> AsyncIterator[Probed]:
    made = Probed()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def test_only_readiness_is_probed_while_containers_are_stopped_and_the_status_says_what_was_found(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    async def until(ready: bool) -> None:
        async def reported() -> bool:
            return is_ready(await node.get("leaving")) == ready

        await eventually(reported, f"its readiness is not {ready}")

    async with probed() as server:
        probes = {"readinessProbe": server.probe("/ready"), "livenessProbe": server.probe("/live")}
        await create(node, "leaving", container("cat", **probes), terminationGracePeriodSeconds=100_000)
        await node.ready("leaving")
        await node.delete("leaving")

        async def stopping() -> bool:
            return len(calls(runtime, "StopContainer")) == 1

        await eventually(stopping, "it is not being stopped")
        server.requests.clear()
        server.statuses.update({"/ready": 503, "/live": 500})
        await until(False)
        server.statuses["/ready"] = 200
        await until(True)
        assert server.requests.count("/live") <= 1, "one was under way at most"
        await node.delete("leaving", grace=90_000)  # begins the termination again
        server.statuses["/ready"] = 503
        await until(False)
        await node.delete("leaving", grace=1)
        await node.gone("leaving")


async def test_readiness_is_probed_on_after_the_agent_restarts_during_a_termination(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    async with probed() as server:
        probes = {"readinessProbe": server.probe("/ready")}
        await create(node, "leaving", container("cat", **probes), terminationGracePeriodSeconds=100_000)
        await node.ready("leaving")
        await node.delete("leaving")

        async def stopping() -> bool:
            return len(calls(runtime, "StopContainer")) == 1

        await eventually(stopping, "it is not being stopped")
        await node.stop()
        server.requests.clear()
        await node.start()

        async def probed_again() -> bool:
            return server.requests.count("/ready") > 2

        await eventually(probed_again, "nothing is probed")
        assert is_ready(await node.get("leaving"))
        server.statuses["/ready"] = 503

        async def unready() -> bool:
            return not is_ready(await node.get("leaving"))

        await eventually(unready, "its readiness is not reported")
        await node.delete("leaving", grace=1)
        await node.gone("leaving")
