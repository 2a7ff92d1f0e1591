"""A container that a killed agent made and did not start is started by the next one, once, whatever the restart policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cri.channel import Channel
from cri.fake import FakeRuntime
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest


async def test_a_container_that_was_never_started_is_no_failure(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    unary, cut, killed = Channel.unary, asyncio.Event(), asyncio.Event()

    async def cutting(channel: Channel, path: str, *arguments: Any) -> Any:
        if path.endswith("/StartContainer"):
            cut.set()
            await killed.wait()
            raise asyncio.CancelledError
        return await unary(channel, path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Channel, "unary", cutting)
        await create(node, "once", container("exit 0"), restartPolicy="Never")
        async with asyncio.timeout(30):
            await cut.wait()
        killed.set()
        await node.stop()
    await node.start()
    pod = await node.wait("once", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    assert pod.status.phase == "Succeeded", pod.status
    assert sum(c.status.started_at > 0 for c in runtime.containers.containers.values()) == 1
