"""Static pods: manifests in a folder, mirror pods in the API."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from kube.api import core_v1
from kube.errors import StatusError
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, agent_node, eventually

TRAP = "trap 'exit 0' TERM; sleep 1000 & wait"


def manifest(script: str = TRAP) -> str:
    container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": spec})


@pytest.fixture
async def node(tmp_path: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    (tmp_path / "manifests").mkdir()
    async with agent_node(tmp_path, containerd, server, static_pod_path=tmp_path / "manifests") as node:
        yield node


async def shown(node: NodeUnderTest) -> core_v1.Pod:
    async def there() -> bool:
        try:
            pod = await node.get("static-node-1")
        except StatusError:
            return False
        return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)

    await eventually(there, "no ready mirror pod")
    return await node.get("static-node-1")


async def test_a_manifest_runs_and_is_mirrored_and_goes_with_its_file(node: NodeUnderTest, tmp_path: Path) -> None:
    file = tmp_path / "manifests/static.yaml"
    file.write_text(manifest())
    pod = await shown(node)
    annotations = pod.metadata.annotations
    assert annotations["kubernetes.io/config.source"] == "file"
    assert annotations["kubernetes.io/config.mirror"] == annotations["kubernetes.io/config.hash"]
    assert pod.metadata.owner_references[0].kind == "Node"

    # Deleting the mirror, with grace as kubectl does, does not touch what runs: it comes back and shows the same.
    await node.delete("static-node-1", grace=30)

    async def another() -> bool:
        try:
            return (await node.get("static-node-1")).metadata.uid != pod.metadata.uid
        except StatusError:
            return False

    await eventually(another, "the mirror did not come back")
    again = await shown(node)
    assert again.status.container_statuses[0].container_id == pod.status.container_statuses[0].container_id

    # The agent's restart finds it again.
    await node.stop()
    await node.start()
    restarted = await shown(node)
    assert restarted.status.container_statuses[0].container_id == pod.status.container_statuses[0].container_id

    # A changed manifest is another pod.
    file.write_text(manifest(f"echo changed; {TRAP}"))

    async def replaced() -> bool:
        try:
            now = await node.get("static-node-1")
        except StatusError:
            return False
        statuses = now.status.container_statuses
        return bool(
            statuses and statuses[0].ready and statuses[0].container_id != pod.status.container_statuses[0].container_id
        )

    await eventually(replaced, "the changed manifest was not run")
    file.unlink()
    await node.gone("static-node-1")

    async def nothing() -> bool:
        return not any(node.config.pods_dir.iterdir())

    await eventually(nothing, "the static pod's folder is still there")


async def test_a_static_pod_runs_while_the_api_server_is_away(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest
) -> None:
    folder = tmp_path / "alone"
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests/static.yaml").write_text(manifest())
    async with agent_node(folder, containerd, server, name="node-2", static_pod_path=folder / "manifests") as node:
        await node.stop()
        kubeconfig = folder / "nowhere.kubeconfig"
        assert node.config.kubeconfig is not None
        kubeconfig.write_text(node.config.kubeconfig.read_text().replace(server.url, "https://127.0.0.1:1"))
        (folder / "manifests/static.yaml").write_text(manifest(f"echo alone; {TRAP}"))
        node.config = dataclasses.replace(node.config, kubeconfig=kubeconfig)
        started = node.begin()

        async def runs() -> bool:
            logs = list(node.config.pod_logs_dir.glob("default_static-node-2_*/main/0.log"))
            return any("alone" in log.read_text() for log in logs)

        await eventually(runs, "the static pod did not start without the API")
        assert not started.done()
