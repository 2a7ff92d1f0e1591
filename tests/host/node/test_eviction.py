"""A node whose disk runs full: a small one of its own, filled by a pod with what it writes into an emptyDir."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.config import EvictionSettings, ImageSettings
from agent.volumes import mounts
from kube.api import core_v1
from tests.support import images
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually

MI = 1 << 20
DISK, THRESHOLD = 64 * MI, 32 * MI


async def pressure(node: NodeUnderTest) -> str:
    found = await node.client.get(core_v1.Node, "node-1")
    return next(c.status for c in found.status.conditions if c.type == "DiskPressure")


async def test_the_pod_that_fills_the_nodes_disk_is_evicted_and_gives_it_back(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest
) -> None:
    def writes(size: int) -> dict[str, object]:
        script = f"head -c {size} /dev/zero > /d/x; trap 'exit 0' TERM; sleep 1000 & wait"
        container: dict[str, object] = {"name": "main", "image": images.BUSYBOX_IMAGE, "command": ["sh", "-c", script]}
        container |= {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
        return {"containers": [container], "volumes": [{"name": "d", "emptyDir": {}}]}

    root = tmp_path / "kubelet"
    root.mkdir()
    mounts.mount_tmpfs(root, size=DISK)
    settings: dict[str, Any] = {
        "eviction": EvictionSettings(hard={"nodefs.available": str(THRESHOLD)}, pressure_transition=20.0),
        "images": ImageSettings(minimum_age=1e9),  # other tests' images are for them
    }
    async with agent_node(tmp_path, containerd, server, clock=FastClock(10.0), **settings) as node:
        await node.create("small", writes(MI))
        await node.ready("small")
        assert await pressure(node) == "False"
        await node.create("filler", writes(40 * MI))

        async def shown() -> bool:
            return await pressure(node) == "True"

        await eventually(shown, "the node says nothing of its disk")
        evicted = await node.wait("filler", lambda pod: pod.status.phase == "Failed")
        assert evicted.status.reason == "Evicted"
        output = "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: "
        assert (evicted.status.message or "").startswith(output)

        async def passed() -> bool:
            return await pressure(node) == "False"

        await eventually(passed, "the disk is free again, and the node does not say so")
        assert (await node.get("small")).status.phase == "Running"
        assert not (root / "pods" / (evicted.metadata.uid or "") / "volumes" / "kubernetes.io~empty-dir" / "d").exists()
