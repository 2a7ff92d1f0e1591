"""A shortage of disk on a node: leftovers of pods that have ended are removed before a pod is evicted."""

from __future__ import annotations

import pytest

from agent.eviction import signals
from agent.eviction.signals import Reading
from cri.fake import FakeRuntime
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest, eventually


def names(runtime: FakeRuntime) -> set[str]:
    return {sandbox.config.metadata.name for sandbox in runtime.containers.sandboxes.values()}


async def test_ended_pods_lose_their_containers_and_logs_and_nothing_else(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(node, "runs")
    await node.ready("runs")
    await create(node, "done", container("exit 3"), restartPolicy="Never")
    done = await node.wait("done", lambda pod: pod.status.phase == "Failed")
    capacity = 1 << 30

    def disk(name: str, folder: object) -> dict[str, Reading]:
        available = 0 if "done" in names(runtime) else capacity
        return {f"{name}.available": Reading(available, capacity), f"{name}.inodesFree": Reading(capacity, capacity)}

    monkeypatch.setattr(signals, "_disk", disk)

    async def is_removed() -> bool:
        return names(runtime) == {"runs"}

    await eventually(is_removed, "the ended pod's sandbox is removed")

    async def has_no_logs() -> bool:
        return [folder.name.split("_")[1] for folder in node.config.pod_logs_dir.iterdir()] == ["runs"]

    await eventually(has_no_logs, "the ended pod's logs are removed")
    for _ in range(2):
        found = await node.get("done")
        assert found.status.phase == "Failed"
        assert found.status.container_statuses == done.status.container_statuses
        await node.stop()
        await node.start()
    assert len(calls(runtime, "RunPodSandbox")) == 2
    assert (await node.get("runs")).status.phase == "Running"
    await node.delete("done")
    await node.gone("done")
