"""Pods that are being terminated for as long as their authors like: they have their resources until they are gone."""

from __future__ import annotations

from typing import Any

import pytest

from agent.status.writer import StatusWriter
from agent.volumes.cleanup import CleanupError
from agent.volumes.manager import VolumeManager
from kube.api import core_v1
from tests.support.fake_node import calls, container, create
from tests.support.node import eventually

LONG = 100_000
"""Seconds of grace."""


async def test_a_pod_that_is_being_terminated_takes_room_until_it_is_gone(node: Any, runtime: Any) -> None:
    found = await node.client.get(core_v1.Node, "node-1")
    whole = {"requests": {"cpu": str(found.status.allocatable["cpu"])}}
    await create(node, "leaving", container("cat", resources=whole), terminationGracePeriodSeconds=LONG)
    await node.ready("leaving")
    await node.delete("leaving")

    async def is_stopping() -> bool:
        return len(calls(runtime, "StopContainer")) == 1

    await eventually(is_stopping, "the container is being stopped")
    await create(node, "second", container("cat", resources=whole))
    refused = await node.wait("second", lambda pod: pod.status.phase == "Failed")
    assert refused.status.reason == "OutOfcpu"
    await node.delete("leaving", grace=0)


@pytest.mark.parametrize("grace", [8_000_000_000, 2**63 - 1])
async def test_a_container_is_asked_to_stop_however_long_its_grace_period_is(
    node: Any, runtime: Any, grace: int
) -> None:
    script = container("trap 'exit 0' TERM; cat")
    await create(node, "long", script, terminationGracePeriodSeconds=grace)
    await node.ready("long")
    await node.delete("long")
    await node.gone("long")
    assert calls(runtime, "StopContainer")[0].timeout > LONG


class Unmounting:
    """Fails to remove the volumes of pods as long as there is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.error: Exception | None = error
        self.tries = 0
        clean = VolumeManager.clean

        async def clean_or_fail(volumes: VolumeManager, *args: Any) -> None:
            self.tries += 1
            if self.error is not None:
                raise self.error
            await clean(volumes, *args)

        monkeypatch.setattr(VolumeManager, "clean", clean_or_fail)

    async def tried(self, times: int) -> None:
        wanted = self.tries + times

        async def is_reached() -> bool:
            return self.tries >= wanted

        await eventually(is_reached, f"volumes are removed {wanted} times")


@pytest.mark.parametrize("error", [CleanupError("the driver does not answer"), RuntimeError("a bug")])
async def test_a_shorter_grace_period_leaves_no_volumes(
    node: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    unmounting = Unmounting(monkeypatch, error)
    delete, mounted_at_deletion = StatusWriter.delete, list[bool]()

    async def recorded(writer: StatusWriter, pod: core_v1.Pod) -> None:
        mounted_at_deletion.append(unmounting.error is not None)
        await delete(writer, pod)

    monkeypatch.setattr(StatusWriter, "delete", recorded)
    spec = {"containers": [container("cat")], "volumes": [{"name": "data", "emptyDir": {}}]}
    # Without the finalizer, the API server removes a pod whose containers have ended with the second deletion.
    await node.create("leaving", {**spec, "terminationGracePeriodSeconds": LONG}, finalizers=["example.com/kept"])
    pod = await node.ready("leaving")
    folder = node.config.pods_dir / (pod.metadata.uid or "")
    await node.delete("leaving", grace=100)
    await unmounting.tried(2)
    await node.delete("leaving", grace=1)
    await unmounting.tried(2)
    assert not mounted_at_deletion and folder.exists()
    unmounting.error = None

    async def is_deleted() -> bool:
        return bool(mounted_at_deletion)

    await eventually(is_deleted, "the agent deletes the pod")
    assert not any(mounted_at_deletion) and not folder.exists()
    await node.client.patch(core_v1.Pod, "leaving", "default", {"metadata": {"finalizers": None}})
    await node.gone("leaving")


async def test_the_volumes_of_an_evicted_pod_are_removed_after_an_unexpected_error(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmounting = Unmounting(monkeypatch, RuntimeError("a bug"))
    await create(node, "over", container("cat"), volumes=[{"name": "data", "emptyDir": {}}], activeDeadlineSeconds=5)
    pod = await node.wait("over", lambda pod: pod.status.phase == "Failed")
    await unmounting.tried(1)
    unmounting.error = None
    await unmounting.tried(1)
    folder = node.config.pods_dir / (pod.metadata.uid or "")

    async def is_removed() -> bool:
        return not folder.exists()

    await eventually(is_removed, "the pod's folder is removed")
