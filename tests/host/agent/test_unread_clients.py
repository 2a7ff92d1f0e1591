"""Attached clients that do not read block a container's output in containerd: its end and its log do not depend on them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from websockets.asyncio.client import connect

from agent import attached_clients
from agent.interfaces import Pods
from agent.node.log_rotation import LogRotation
from agent.runtime import Runtime
from kube.clock import SYSTEM
from tests.host.agent.conftest import Node, Served

NOISY = "trap 'exit 0' TERM; yes 0123456789012345678901234567890123456789 & wait"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_clients, "BLOCKED_SECONDS", 0.5)


@contextlib.asynccontextmanager
async def attached(served: Served) -> AsyncIterator[None]:
    """Attach without reading, until the container's log does not grow any more."""
    url = served.url("/attach/default/pod/main?output=1", "wss")
    session = connect(url, ssl=served.tls, subprotocols=["v5.channel.k8s.io"], proxy=None)  # type: ignore[list-item]
    async with asyncio.timeout(30):
        socket = await session
    try:
        sizes = list[int]()
        async with asyncio.timeout(60):
            while len(sizes) < 11 or len(set(sizes[-10:])) > 1:
                sizes.append(log(served).stat().st_size)
                await asyncio.sleep(0.05)
        yield
    finally:
        socket.transport.abort()


def log(served: Served) -> Path:
    return served.logs / "default_pod_uid/main/0.log"


def test_a_container_is_stopped_after_its_grace_period(node: Node) -> None:
    async def body(served: Served) -> None:
        runtime = Runtime(served.pods.client)
        runtime.attached = served.attached
        async with attached(served), asyncio.timeout(30):
            await runtime.stop(served.pods.containers["main"], 1)
            await served.pods.refresh()
            assert served.pods.seen.running("main") is None

    node.run(body, NOISY)


def test_a_log_is_rotated_and_the_container_writes_into_the_new_file(node: Node) -> None:
    async def body(served: Served) -> None:
        rotation = LogRotation(
            served.pods.client.runtime,
            cast(Pods, served.pods),
            SYSTEM,
            served.attached,
            max_bytes=1000,
            max_files=5,
            period=10,
        )
        async with attached(served), asyncio.timeout(30):
            await rotation.rotate_all()
            before = log(served).stat().st_size
            while log(served).stat().st_size <= before:
                await asyncio.sleep(0.05)
            assert len(list(log(served).parent.iterdir())) == 2

    node.run(body, NOISY)
