"""Volumes of a CSI driver in pods: registered, attached, staged, published, grown, and taken down again, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi.messages import AccessMode
from agent.volumes import mounts
from control.controllers.attach_detach import AttachDetachController
from control.controllers.context import Context
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.errors import StatusError
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.csi_driver import CSIDriver
from tests.support.csi_sidecars import Sidecars
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, agent_node, eventually

NAME = "disk.csi.test"
Json = dict[str, Any]


@pytest.fixture
def place() -> Path:
    """A short path, for sockets; nothing is left mounted below it."""
    with tempfile.TemporaryDirectory(prefix="csi-") as name:
        try:
            yield Path(name)
        finally:
            for point in mounts.mount_points(Path(name)):
                mounts.unmount(point)


@pytest.fixture
async def node(place: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(place, containerd, server) as node, controllers(server.client()):
        yield node


@contextlib.asynccontextmanager
async def controllers(client: Client) -> AsyncIterator[None]:
    """The attach/detach controller alone."""
    context = Context(client)
    controller = AttachDetachController(context)
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks += [asyncio.create_task(recorder.run()) for recorder in context.recorders()]
    tasks.append(asyncio.create_task(controller.run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def driver_on(
    node: NodeUnderTest, place: Path, *, sidecars: bool = True, about: Json | None = None, **facts: Any
) -> AsyncIterator[CSIDriver]:
    """A driver that is registered with the node, and known to the cluster as `about` says."""
    driver = CSIDriver(NAME, place / "driver", **facts)
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME}, "spec": about or {}}
    if about is not None:
        await node.client.create(msgspec.convert(body, storage_v1.CSIDriver))
    async with driver.serving(node.config.plugins_registry_dir) as registration:
        async with asyncio.timeout(30):
            assert await registration.told.get() == ""
        task = asyncio.create_task(Sidecars(node.client, driver).run()) if sidecars else None
        try:
            yield driver
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def claim(client: Client, name: str, size: str = "1Gi", mode: str = "Filesystem", **spec: Any) -> Json:
    """Make a volume of the driver with its claim, bound to each other as the binder does."""
    modes = spec.pop("accessModes", ["ReadWriteOnce"])
    source = {"driver": NAME, "volumeHandle": f"h-{name}", "fsType": "ext4", **spec.pop("csi", {})}
    body: Json = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "volumeName": f"pv-{name}",
            "volumeMode": mode,
            "storageClassName": "",
        },
    }
    made = await client.create(msgspec.convert(body, core_v1.PersistentVolumeClaim))
    reference = {"namespace": "default", "name": name, "uid": made.metadata.uid, "kind": "PersistentVolumeClaim"}
    volume = {
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "volumeMode": mode,
            "claimRef": reference,
            "csi": source,
            **spec,
        },
    }
    await client.create(msgspec.convert(volume, core_v1.PersistentVolume))
    made.status = core_v1.PersistentVolumeClaimStatus(phase="Bound", access_modes=modes, capacity={"storage": size})
    await client.update_status(made)
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def spec(volume: Json, command: str = "sleep 1000", **changes: Any) -> Json:
    container: Json = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        **changes.pop("container", {}),
    }
    return {"containers": [container], "volumes": [volume], **changes}


async def exists(client: Client, kind: type[Any], name: str) -> bool:
    try:
        await client.get(kind, name)
    except StatusError as error:
        assert error.not_found, error
        return False
    return True


async def test_a_driver_is_told_of_in_csinode_and_on_the_node_and_no_more_when_it_goes(
    node: NodeUnderTest, place: Path
) -> None:
    async def drivers() -> list[storage_v1.CSINodeDriver]:
        return (await node.client.get(storage_v1.CSINode, "node-1")).spec.drivers

    await eventually(lambda: exists(node.client, storage_v1.CSINode, "node-1"), "a CSINode without any driver")
    assert await drivers() == []
    topology = {"topology.disk.csi.test/rack": "r1"}
    async with driver_on(node, place, node_id="n-77", limit=5, topology=topology, sidecars=False):
        (found,) = await drivers()
        assert (found.name, found.node_id, found.topology_keys) == (NAME, "n-77", list(topology))
        assert found.allocatable is not None and found.allocatable.count == 5
        metadata = (await node.client.get(core_v1.Node, "node-1")).metadata
        assert metadata.labels["topology.disk.csi.test/rack"] == "r1"
        assert json.loads(metadata.annotations["csi.volume.kubernetes.io/nodeid"]) == {NAME: "n-77"}
        owner = (await node.client.get(storage_v1.CSINode, "node-1")).metadata.owner_references[0]
        assert (owner.kind, owner.uid) == ("Node", metadata.uid)

    async def none() -> bool:
        return await drivers() == []

    await eventually(none, "the driver is gone from the CSINode")


async def test_a_volume_is_attached_staged_and_published_and_all_of_it_undone(node: NodeUnderTest, place: Path) -> None:
    async with driver_on(node, place) as driver:
        volume = await claim(node.client, "a", csi={"volumeAttributes": {"kind": "fast"}}, mountOptions=["noatime"])
        await node.create("web", spec(volume, "echo kept > /data/file; sleep 1000"))
        pod = await node.ready("web")
        uid = pod.metadata.uid or ""
        (stage,), (publish,) = driver.made("NodeStageVolume"), driver.made("NodePublishVolume")
        root = node.config.root_dir
        assert stage.staging_target_path.startswith(f"{root}/plugins/kubernetes.io/csi/{NAME}/")
        assert stage.staging_target_path.endswith("/globalmount")
        assert publish.target_path == f"{root}/pods/{uid}/volumes/kubernetes.io~csi/pv-a/mount"
        assert publish.staging_target_path == stage.staging_target_path
        assert stage.volume_id == publish.volume_id == "h-a"
        assert dict(stage.publish_context) == {"device": "/dev/none"}, "what attaching gave"
        assert dict(publish.volume_context) == {"kind": "fast"}, "no pod information where the driver asks for none"
        assert stage.volume_capability.mount.fs_type == "ext4"
        assert list(stage.volume_capability.mount.mount_flags) == ["noatime"]
        assert stage.volume_capability.access_mode.mode == AccessMode.SINGLE_NODE_WRITER
        assert (driver.folder("h-a") / "file").read_text() == "kept\n"
        status = (await node.client.get(core_v1.Node, "node-1")).status
        assert status.volumes_in_use == [f"kubernetes.io/csi/{NAME}^h-a"]
        assert [volume.name for volume in status.volumes_attached] == [f"kubernetes.io/csi/{NAME}^h-a"]
        note = json.loads((Path(publish.target_path).parent / "vol_data.json").read_text())
        assert (note["driverName"], note["volumeHandle"], note["specVolID"]) == (NAME, "h-a", "pv-a")
        assert await node.event("web", "SuccessfulAttachVolume") == 'AttachVolume.Attach succeeded for volume "pv-a" '

        await node.delete("web")
        await node.gone("web")
        assert [r.target_path for r in driver.made("NodeUnpublishVolume")] == [publish.target_path]
        assert [r.staging_target_path for r in driver.made("NodeUnstageVolume")] == [stage.staging_target_path]
        assert not Path(stage.staging_target_path).parent.exists()

        async def detached() -> bool:
            status = (await node.client.get(core_v1.Node, "node-1")).status
            left = (await node.client.list(storage_v1.VolumeAttachment)).items
            return not left and not status.volumes_in_use and not status.volumes_attached

        await eventually(detached, "the volume is detached")
        assert (driver.folder("h-a") / "file").read_text() == "kept\n", "only the mounts are gone"
