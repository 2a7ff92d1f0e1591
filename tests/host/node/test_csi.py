"""Volumes of a CSI driver in pods: registered, attached, staged, published, grown, unpublished, whichever process is killed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from agent.csi.messages import Ability, AccessMode
from agent.volumes import mounts
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.csi_driver import ABILITIES
from tests.support.csi_pods import CLASS, NAME, claim, controllers, driver_on, short_place, spec
from tests.support.node import NodeUnderTest, agent_node, eventually


@pytest.fixture
def place() -> Iterator[Path]:
    with short_place() as made:
        yield made


@pytest.fixture
async def node(place: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(place, containerd, server) as node, controllers(server.client()):
        yield node


def left(path: str) -> bool:
    return os.path.lexists(path)


async def exists(client: Client, kind: type[Any], name: str) -> bool:
    try:
        await client.get(kind, name)
    except StatusError as error:
        assert error.not_found, error
        return False
    return True


async def test_a_driver_is_listed_in_csinode_and_on_the_node_until_it_is_unregistered(
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
        # A part of the volume is bound elsewhere, which must be gone before the volume can go.
        part = {
            "volumeMounts": [
                {"name": "data", "mountPath": p, **s} for p, s in (("/data", {}), ("/p", {"subPath": "p"}))
            ]
        }
        await node.create("web", spec(volume, "echo kept > /data/file", container=part))
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


async def test_a_volume_survives_the_agent_and_is_let_go_of_only_after_its_last_pod(
    place: Path, node: NodeUnderTest
) -> None:
    async with driver_on(node, place, about={"attachRequired": True}) as driver:
        volume = await claim(node.client, "a")
        await node.create("one", spec(volume))
        await node.create("two", spec(volume))
        first, second = await node.ready("one"), await node.ready("two")
        assert len({r.staging_target_path for r in driver.made("NodeStageVolume")}) == 1
        before = [status.container_id for pod in (first, second) for status in pod.status.container_statuses]
        await node.stop()
        await node.start()
        in_use = (await node.client.get(core_v1.Node, "node-1")).status.volumes_in_use
        assert in_use == [f"kubernetes.io/csi/{NAME}^h-a"], "known from disk before the driver has registered again"
        await node.delete("one")
        await node.gone("one")
        assert len(driver.made("NodeUnpublishVolume")) == 1
        assert not driver.made("NodeUnstageVolume"), "the other pod uses it"
        after = await node.ready("two")
        assert after.status.container_statuses[0].container_id == before[1]
        await node.delete("two")
        await node.gone("two")
        assert len(driver.made("NodeUnstageVolume")) == 1


async def test_a_pod_stays_until_its_driver_is_back_to_take_the_volume_down(node: NodeUnderTest, place: Path) -> None:
    about = {"attachRequired": False}
    async with driver_on(node, place, about=about, sidecars=False):
        await node.create("web", spec(await claim(node.client, "a")))
        pod = await node.ready("web")
        assert (await node.client.get(core_v1.Node, "node-1")).status.volumes_in_use == [], "nobody attaches it"
    target = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~csi/pv-a/mount"

    async def let_go() -> bool:
        return (await node.client.get(storage_v1.CSINode, "node-1")).spec.drivers == []

    await eventually(let_go, "the driver is deregistered")
    await node.delete("web")

    async def ended() -> bool:
        statuses = (await node.get("web")).status.container_statuses
        return bool(statuses) and statuses[0].state is not None and statuses[0].state.terminated is not None

    await eventually(ended, "the container has ended")
    assert mounts.is_mount_point(target), "nothing is torn from under a driver"
    async with driver_on(node, place, sidecars=False) as driver:
        await node.gone("web")
        assert driver.made("NodeUnpublishVolume") and driver.made("NodeUnstageVolume")
    assert not mounts.is_mount_point(target)


async def test_a_missing_driver_and_its_errors_are_reported_with_upstreams_messages(
    node: NodeUnderTest, place: Path
) -> None:
    volume = await claim(node.client, "a")
    await node.create("web", spec(volume))
    assert await node.event("web", "FailedMount") == (
        'MountVolume.MountDevice failed for volume "pv-a" : kubernetes.io/csi: attacher.MountDevice failed to create '
        f"newCsiDriverClient: driver name {NAME} not found in the list of registered CSI drivers"
    )
    async with driver_on(node, place, about={"attachRequired": False}, sidecars=False) as driver:
        driver.failures["NodeStageVolume"] = (grpc.StatusCode.INTERNAL, "the disk is wet")
        wanted = (
            "FailedMount",
            'MountVolume.MountDevice failed for volume "pv-a" : rpc error: code = Internal desc = the disk is wet',
        )

        async def is_reported() -> bool:
            return wanted in await node.events("web")

        await eventually(is_reported, "the event contains the driver's message")
        driver.failures.clear()
        await node.ready("web")


async def test_a_driver_gets_the_pod_information_that_it_requests(node: NodeUnderTest, place: Path) -> None:
    about: Object = {
        "attachRequired": False,
        "podInfoOnMount": True,
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 3600}],
    }
    for name in ("stage", "publish"):
        secret = {"metadata": {"name": name, "namespace": "default"}, "stringData": {"key": name}}
        await node.client.create(msgspec.convert(secret, core_v1.Secret))
    abilities = (*ABILITIES, Ability.SINGLE_NODE_MULTI_WRITER, Ability.VOLUME_MOUNT_GROUP)
    async with driver_on(node, place, about=about, sidecars=False, abilities=abilities) as driver:
        references = {
            f"node{kind.title()}SecretRef": {"name": kind, "namespace": "default"} for kind in ("stage", "publish")
        }
        volume = await claim(node.client, "a", accessModes=["ReadWriteOncePod"], csi={**references, "readOnly": True})
        await node.create("web", spec(volume, securityContext={"fsGroup": 1234}))
        pod = await node.ready("web")
        (stage,), (publish,) = driver.made("NodeStageVolume"), driver.made("NodePublishVolume")
        assert (dict(stage.secrets), dict(publish.secrets)) == ({"key": "stage"}, {"key": "publish"})
        context = dict(publish.volume_context)
        assert context["csi.storage.k8s.io/pod.uid"] == pod.metadata.uid
        assert context["csi.storage.k8s.io/serviceAccount.name"] == "default"
        assert context["csi.storage.k8s.io/ephemeral"] == "false"
        tokens = json.loads(context["csi.storage.k8s.io/serviceAccount.tokens"])
        assert tokens["vault"]["token"].count(".") == 2 and tokens["vault"]["expirationTimestamp"].endswith("Z")
        assert publish.volume_capability.access_mode.mode == AccessMode.SINGLE_NODE_SINGLE_WRITER
        assert publish.volume_capability.mount.volume_mount_group == "1234", "the driver sees to the group"
        assert publish.readonly
        assert "read-only" in await node.execute(pod, "sh", "-c", "touch /data/x 2>&1 || echo read-only")


async def test_files_get_the_pods_group_according_to_the_drivers_fs_group_policy(
    node: NodeUnderTest, place: Path
) -> None:
    async with driver_on(node, place, about={"attachRequired": False}, sidecars=False) as driver:
        inside, outside = driver.folder("h-a"), place / "outside"
        outside.write_text("not ours")
        outside.chmod(0o600)
        (inside / "below").mkdir(mode=0o700)
        (inside / "below" / "file").write_text("x")
        (inside / "below" / "file").chmod(0o600)
        (inside / "link").symlink_to(outside)
        await node.create("web", spec(await claim(node.client, "a"), securityContext={"fsGroup": 1234}))
        await node.ready("web")
        file, folder = (inside / "below" / "file").stat(), (inside / "below").stat()
        assert (file.st_gid, file.st_mode & 0o777) == (1234, 0o660)
        assert (folder.st_gid, folder.st_mode & 0o7777) == (1234, 0o2770)
        assert (outside.stat().st_gid, outside.stat().st_mode & 0o777) == (0, 0o600), "links are not followed"
        # Of a volume that several nodes may have, no node gives the files away.
        shared = await claim(node.client, "b", accessModes=["ReadWriteMany"])
        await node.create("other", spec(shared, securityContext={"fsGroup": 1234}))
        await node.ready("other")
        assert driver.folder("h-b").stat().st_gid == 0


async def test_a_pods_own_volume_is_made_for_it_alone(node: NodeUnderTest, place: Path) -> None:
    volume: Object = {"name": "data", "csi": {"driver": NAME, "volumeAttributes": {"size": "1"}}}
    about: Object = {"podInfoOnMount": True, "volumeLifecycleModes": ["Ephemeral"]}
    await node.create("early", spec(volume))
    async with driver_on(node, place, about=about, sidecars=False) as driver:
        await node.create("web", spec(volume, "echo x > /data/file"))
        pod = await node.ready("web")
        publish = next(r for r in driver.made("NodePublishVolume") if (pod.metadata.uid or "") in r.target_path)
        assert publish.volume_id.startswith("csi-") and not publish.staging_target_path
        assert publish.volume_context["csi.storage.k8s.io/ephemeral"] == "true"
        assert not driver.made("NodeStageVolume")
        await node.ready("early")
        for name in ("web", "early"):
            await node.delete(name)
            await node.gone(name)
        assert len(driver.made("NodeUnpublishVolume")) == 2


async def test_a_block_volume_is_a_device_in_the_container(node: NodeUnderTest, place: Path) -> None:
    async with driver_on(node, place, about={"attachRequired": False}, sidecars=False) as driver:
        volume = await claim(node.client, "a", mode="Block")
        container: Object = {"volumeMounts": [], "volumeDevices": [{"name": "data", "devicePath": "/dev/disk"}]}
        command = "echo written | dd of=/dev/disk bs=512 conv=sync"
        await node.create("web", spec(volume, command, container=container))
        pod = await node.ready("web")
        shown = await node.execute(pod, "sh", "-c", "[ -b /dev/disk ] && head -c 7 /dev/disk")
        assert shown == "written"
        uid = pod.metadata.uid or ""
        (publish,) = driver.made("NodePublishVolume")
        plugin = f"{node.config.root_dir}/plugins/kubernetes.io/csi/volumeDevices"
        assert publish.target_path == f"{plugin}/publish/pv-a/{uid}"
        assert publish.staging_target_path == f"{plugin}/staging/pv-a"
        assert publish.volume_capability.HasField("block")
        link = node.config.pods_dir / uid / "volumeDevices/kubernetes.io~csi/pv-a"
        assert str(link.readlink()) == publish.target_path
        await node.create("wrong", spec(volume))
        assert await node.event("wrong", "FailedMount") == (
            'MountVolume.SetUp failed for volume "pv-a" : volume data has volumeMode Block, but is specified in '
            "volumeMounts"
        )
        for name in ("wrong", "web"):
            await node.delete(name)
            await node.gone(name)
        assert driver.made("NodeUnpublishVolume") and driver.made("NodeUnstageVolume")
        assert not left(publish.target_path) and not os.listdir(f"{plugin}/staging")


async def test_an_expanded_volume_is_resized_on_the_node_and_the_claim_updated(
    node: NodeUnderTest, place: Path
) -> None:
    async with driver_on(node, place, about={"attachRequired": False}) as driver:
        metadata = meta_v1.ObjectMeta(name=CLASS)
        await node.client.create(
            storage_v1.StorageClass(metadata=metadata, provisioner=NAME, allow_volume_expansion=True)
        )
        volume = await claim(node.client, "a", "1Gi")
        await node.client.patch(
            core_v1.PersistentVolumeClaim, "a", "default", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        )

        async def pending() -> bool:
            found = await node.client.get(core_v1.PersistentVolumeClaim, "a", "default")
            return [c.type for c in found.status.conditions] == ["FileSystemResizePending"]

        await eventually(pending, "the node is waited for")
        await node.create("web", spec(volume))
        await node.ready("web")
        (expand,) = driver.made("NodeExpandVolume")
        assert expand.capacity_range.required_bytes == 2 << 30
        assert expand.volume_path == driver.made("NodePublishVolume")[0].target_path
        found = await node.client.get(core_v1.PersistentVolumeClaim, "a", "default")
        assert found.status.capacity == {"storage": "2Gi"}
        assert not found.status.conditions and not found.status.allocated_resource_statuses
        message = await node.event("web", "FileSystemResizeSuccessful")
        assert message == 'MountVolume.NodeExpandVolume succeeded for volume "pv-a"'
