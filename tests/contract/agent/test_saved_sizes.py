"""Sizes of pods are on disk before the runtime is asked for them, whenever the agent ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.managers import state_files
from agent.pods.resource_state import ACTUATED, ALLOCATED
from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.client import STRATEGIC
from kube.quantity import milli
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest

SMALL = {"requests": {"cpu": "100m"}}
SIZED = ("CreateContainer", "StartContainer", "UpdateContainerResources")


def saved(node: NodeUnderTest, name: str, uid: str, of: str = "main") -> str | None:
    """Return the CPU request of a container that a file has."""
    path = node.config.root_dir / name
    entries = json.loads(json.loads(path.read_text())["data"])["entries"] if path.exists() else {}
    found = (entries.get(uid) or {}).get("ContainerResources") or {}
    return found.get(of, {}).get("requests", {}).get("cpu")


class RecordedSizes(list[Any]):
    """Calls of the runtime, with what both files have of a pod when each arrives."""

    def __init__(self, node: NodeUnderTest) -> None:
        self.node, self.uid = node, ""
        self.found: list[tuple[str, str | None, str | None]] = []

    def append(self, call: Any) -> None:
        super().append(call)
        if call[0] in (*SIZED, "RunPodSandbox"):
            self.uid = call[1].config.metadata.uid if call[0] == "RunPodSandbox" else self.uid
            sizes = [saved(self.node, name, self.uid) for name in (ALLOCATED, ACTUATED)]
            self.found.append((call[0], *sizes))


def reason(pod: core_v1.Pod) -> str | None:
    return next((c.reason for c in pod.status.conditions if c.type == "PodResizePending"), None)


def actual(pod: core_v1.Pod) -> object:
    resources = pod.status.container_statuses[0].resources
    return resources.requests["cpu"] if resources is not None else None


async def resize(node: NodeUnderTest, name: str, cpu: object) -> None:
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    await node.client.patch(core_v1.Pod, name, "default", body, type=STRATEGIC, subresource="resize")


async def test_sizes_are_saved_before_the_runtime_gets_them(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    observed = runtime.calls = RecordedSizes(node)
    await create(node, "sized", container(resources=SMALL))
    await node.ready("sized")
    assert observed.found == [
        ("RunPodSandbox", "100m", None),
        ("CreateContainer", "100m", "100m"),
        ("StartContainer", "100m", "100m"),
    ]
    observed.found.clear()
    await resize(node, "sized", "200m")
    await node.wait("sized", lambda p: actual(p) == "200m")
    assert observed.found == [("UpdateContainerResources", "200m", "100m")], "the next agent repeats what it began"
    assert saved(node, ACTUATED, observed.uid) == "200m"


async def test_a_pod_that_still_pulls_an_image_keeps_its_size_when_the_agent_is_replaced(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    other = await create(node, "other", container(resources=SMALL))
    await node.ready("other")
    runtime.failures.delay("PullImage", 10_000.0)
    late = container(name="late", resources=SMALL) | {"image": "registry.local/absent:1"}
    pod = await create(node, "sized", container(resources=SMALL), late)
    await node.wait("sized", lambda p: any(s.started for s in p.status.container_statuses if s.name == "main"))
    await node.stop()
    assert saved(node, ALLOCATED, pod.metadata.uid or "") == "100m"
    capacity = (await node.client.get(core_v1.Node, node.config.node_name)).status.allocatable["cpu"]
    await resize(node, "sized", f"{milli(capacity) - 100}m")  # with the late container: all of the node
    await node.start()
    await node.wait("sized", lambda p: reason(p) == "Deferred")
    assert not calls(runtime, "UpdateContainerResources")
    assert saved(node, ALLOCATED, other.metadata.uid or "") == saved(node, ALLOCATED, pod.metadata.uid or "") == "100m"


async def test_a_resize_that_cannot_be_saved_is_deferred_until_it_can(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await create(node, "sized", container(resources=SMALL))
    await node.ready("sized")
    write = state_files.write

    def full(path: Path, content: Any) -> None:
        if path.name == ALLOCATED:
            raise OSError(28, "No space left on device")
        write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(state_files, "write", full)
        await resize(node, "sized", "200m")
        found = await node.wait("sized", lambda p: reason(p) == "Deferred")
        condition = next(c for c in found.status.conditions if c.type == "PodResizePending")
        assert ALLOCATED in (condition.message or "") and "No space left on device" in (condition.message or "")
        await create(node, "new", container(resources=SMALL))
        await node.ready("new")  # as upstream: a pod starts all the same
        assert not calls(runtime, "UpdateContainerResources") and actual(await node.get("sized")) == "100m"
    await node.wait("sized", lambda p: actual(p) == "200m" and reason(p) is None)
    assert saved(node, ALLOCATED, pod.metadata.uid or "") == "200m"
