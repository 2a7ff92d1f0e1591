"""Images of long names make the runtime's list of images larger than a message may be: everything else goes on."""

from __future__ import annotations

import pytest

from agent import complete_lists
from agent.runtime import Runtime
from cri.client import Client
from cri.errors import MessageTooLargeError
from cri.fake import FakeRuntime
from cri.messages import Image
from kube.api import core_v1
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest, eventually

IMAGE = "docker.io/library/other:"
PERIODS = 4


def fill(runtime: FakeRuntime) -> None:
    """Let the list of images be too large, by the names of one."""
    names = [f"registry.example/{'a' * 200}{number:06}:1" for number in range(100)]
    runtime.images.local["long"] = Image(id="sha256:" + "1" * 64, repo_tags=names, size=1000)
    runtime.send_bytes = 16 << 10


async def test_the_node_stays_ready_and_pulls_images_also_after_a_restart(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    async def listed() -> bool:
        return len(calls(runtime, "ListImages")) >= before + PERIODS

    await create(node, "before")
    await node.ready("before")
    reported = (await node.client.get(core_v1.Node, node.config.node_name)).status.images
    fill(runtime)
    for restarts in range(2):
        runtime.images.publish(f"{IMAGE}{restarts}")
        await create(node, f"pull-{restarts}", container(image=f"{IMAGE}{restarts}"))
        await node.ready(f"pull-{restarts}")
        before = len(calls(runtime, "ListImages"))
        await eventually(listed, "node statuses list images")
        found = await node.client.get(core_v1.Node, node.config.node_name)
        ready = next(each for each in found.status.conditions if each.type == "Ready")
        assert ready.status == "True", ready
        if not restarts:
            assert reported and found.status.images == reported, "the last list is still reported"
            await node.stop()
            await node.start()


async def test_a_pod_that_is_too_large_to_be_listed_keeps_its_records_and_others_are_listed(
    runtime: FakeRuntime, node: NodeUnderTest
) -> None:
    for name in ("large", "small"):
        await create(node, name, *(container(name=f"c{n}") for n in range(8 if name == "large" else 1)))
        await node.ready(name)
    await node.stop()
    async with Client(runtime.endpoint) as client:
        before = {uid: pod.runtime for uid, pod in (await Runtime(client).pods()).items()}
        large = max(before, key=lambda uid: len(before[uid].containers))
        sizes = [each.ByteSize() for each in await client.runtime.list_containers()]
        runtime.send_bytes = 4 * max(sizes)
        found = await Runtime(client).pods(before)
        assert {uid: pod.runtime for uid, pod in found.items()} == before
        assert large not in await Runtime(client, folders=lambda: list(before)).pods()


async def test_lists_that_are_too_large_are_read_in_parts(runtime: FakeRuntime, node: NodeUnderTest) -> None:
    for name in ("one", "two", "ended"):
        await create(node, name, *(container(name=f"c{n}") for n in range(4)))
        await node.ready(name)
    await node.stop()
    async with Client(runtime.endpoint) as client:
        sandboxes, containers = await complete_lists.everything(client.runtime)
        await client.runtime.stop_pod_sandbox(sandboxes[0].id)
        runtime.send_bytes = max(3 * sandboxes[0].ByteSize() - 1, 4 * max(each.ByteSize() for each in containers) + 64)
        with pytest.raises(MessageTooLargeError):
            await client.runtime.list_containers()
        found = await complete_lists.everything(client.runtime)
        assert {each.id for each in found[0]} == {each.id for each in sandboxes}
        assert {each.id for each in found[1]} == {each.id for each in containers}
        runtime.send_bytes = 16
        with pytest.raises(MessageTooLargeError):
            await complete_lists.everything(client.runtime)
