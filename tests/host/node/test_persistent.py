"""Claims without a driver: local folders and devices, NFS, and what an older runtime cannot mount."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.volumes import mounts
from kube.api import core_v1
from kube.json_object import Object
from kube.process import run
from kube.volume_binding import LOCAL_PATH_PROVISIONER, PROVISIONED_BY
from tests.support.csi_pods import spec
from tests.support.node import NodeUnderTest


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A loop device of a megabyte."""
    image = tmp_path / "disk.img"
    image.write_bytes(b"hello" + bytes((1 << 20) - 5))
    name = subprocess.run(
        ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    yield name
    subprocess.run(["losetup", "--detach", name], check=True)


def is_device(path: str) -> bool:
    return stat.S_ISBLK(os.stat(path).st_mode)


async def bound(
    node: NodeUnderTest, name: str, source: Object, mode: str = "Filesystem", group: str = "", **spec: Any
) -> Object:
    """Make a PersistentVolume of a source with its claim, as the binder leaves them; return the pod's volume."""
    size = {"storage": "1Gi"}
    body: Object = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": size},
            "volumeName": f"pv-{name}",
            "volumeMode": mode,
            "storageClassName": "",
        },
    }
    claim = await node.client.create(msgspec.convert(body, core_v1.PersistentVolumeClaim))
    reference = {"namespace": "default", "name": name, "uid": claim.metadata.uid, "kind": "PersistentVolumeClaim"}
    everywhere = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [everywhere]}]}}
    volume = {"capacity": size, "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "claimRef": reference}
    metadata = {"name": f"pv-{name}", "annotations": {"pv.beta.kubernetes.io/gid": group} if group else {}}
    made = {"metadata": metadata, "spec": {**volume, "nodeAffinity": affinity, **source, **spec}}
    await node.client.create(msgspec.convert(made, core_v1.PersistentVolume))
    claim.status = core_v1.PersistentVolumeClaimStatus(
        phase="Bound", access_modes=["ReadWriteOnce"], capacity={"storage": "1Gi"}
    )
    await node.client.update_status(claim)
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


async def test_a_local_volume_is_the_groups_and_a_local_device_a_device(
    node: NodeUnderTest, tmp_path: Path, device: str
) -> None:
    folder = tmp_path / "local"
    (folder / "below").mkdir(parents=True, mode=0o700)
    (folder / "secret").symlink_to(tmp_path / "disk.img")
    before = (tmp_path / "disk.img").stat().st_gid
    files = await bound(node, "files", {"local": {"path": str(folder)}})
    disk = await bound(node, "disk", {"local": {"path": device}}, "Block")
    wrong = await bound(node, "wrong", {"local": {"path": str(folder)}}, "Block")
    devices = {"volumeMounts": [], "volumeDevices": [{"name": "data", "devicePath": "/dev/xvda"}]}
    await node.create("files", spec(files, "touch /data/new", securityContext={"fsGroup": 4321}))
    await node.create("disk", spec(disk, container=devices))
    await node.create("wrong", spec(wrong, container=devices))
    await node.ready("files")
    assert folder.stat().st_gid == (folder / "below").stat().st_gid == (folder / "new").stat().st_gid == 4321
    assert (folder / "below").stat().st_mode & 0o7777 == 0o2770
    assert (tmp_path / "disk.img").stat().st_gid == before, "links are not followed"
    assert await node.execute(await node.ready("disk"), "head", "-c", "5", "/dev/xvda") == "hello"
    message = await node.event("wrong", "FailedMount")
    assert message == f'MapVolume.SetUpDevice failed for volume "pv-wrong" : path "{folder}" is not a block device'
    uid = (await node.get("disk")).metadata.uid or ""
    await node.delete("disk")
    await node.gone("disk")
    assert not (node.config.pods_dir / uid).exists()
    assert is_device(device), "only the link to it is gone"


async def test_the_group_of_a_volume_reads_what_is_only_its_own(node: NodeUnderTest, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    folder.mkdir(mode=0o750)
    os.chown(folder, 0, 777)
    volume = await bound(node, "files", {"local": {"path": str(folder)}}, group="777")
    await node.create("files", spec(volume, securityContext={"runAsUser": 1000, "supplementalGroups": [5]}))
    pod = await node.ready("files")
    assert set((await node.execute(pod, "id", "-G")).split()) >= {"5", "777"}
    assert await node.execute(pod, "ls", "/data") == ""


async def test_an_empty_local_device_gets_a_file_system_and_one_with_data_keeps_it(
    node: NodeUnderTest, tmp_path: Path, device: str
) -> None:
    # The kernel takes what is at the device's start for data, so it is emptied first.
    (tmp_path / "disk.img").write_bytes(bytes(16 << 20))
    await run(["losetup", "--set-capacity", device])
    volume = await bound(node, "disk", {"local": {"path": device}}, mountOptions=["noatime"])
    await node.create("first", spec(volume, "echo kept > /data/file", securityContext={"fsGroup": 4321}))
    pod = await node.ready("first")
    mounted = await node.execute(pod, "sh", "-c", "grep ' /data ' /proc/mounts")
    assert mounted.split()[2] == "ext4" and "noatime" in mounted
    assert (await node.execute(pod, "stat", "-c", "%g", "/data/file")).strip() == "4321"
    await node.delete("first")
    await node.gone("first")
    assert not mounts.is_mounted(device)
    await node.create("second", spec(volume, "cat /data/file"))
    assert await node.execute(await node.ready("second"), "cat", "/data/file") == "kept\n"
    other = await bound(node, "other", {"local": {"path": device, "fsType": "xfs"}})
    await node.create("third", spec(other))
    message = await node.event("third", "FailedMount")
    assert message.endswith("failed to mount the volume as xfs, it already contains ext4")


async def test_an_expanded_local_folder_gives_its_claim_the_new_capacity(node: NodeUnderTest, tmp_path: Path) -> None:
    # A file system on a device grows only with CAP_SYS_RESOURCE; the commands are in tests/unit/agent/test_formatting.py.
    volume = await bound(node, "folder", {"local": {"path": str(tmp_path)}})
    await node.client.patch(core_v1.PersistentVolume, "pv-folder", "", {"spec": {"capacity": {"storage": "2Gi"}}})
    resize = {"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}
    claims = core_v1.PersistentVolumeClaim
    await node.client.patch(claims, "folder", "default", {"status": resize}, subresource="status")
    await node.create("pod", spec(volume))
    await node.ready("pod")
    claim = await node.client.get(claims, "folder", "default")
    assert claim.status.capacity == {"storage": "2Gi"} and not claim.status.allocated_resource_statuses
    message = await node.event("pod", "FileSystemResizeSuccessful")
    assert message == 'MountVolume.NodeExpandVolume succeeded for volume "pv-folder"'


async def test_a_local_path_volume_is_bound_from_the_nodes_own_folder_and_outlives_its_pod(
    node: NodeUnderTest, tmp_path: Path
) -> None:
    by_wherry = {"metadata": {"annotations": {PROVISIONED_BY: LOCAL_PATH_PROVISIONER}}}
    uid, other = "01234567-89ab-cdef-0123-456789abcdef", "76543210-89ab-cdef-0123-456789abcdef"
    folder, elsewhere = node.config.local_path_dir / f"pvc-{uid}", tmp_path / f"pvc-{other}"
    elsewhere.symlink_to("/")
    volume = await bound(node, "own", {"local": {"path": str(folder)}})
    outside = await bound(node, "outside", {"local": {"path": str(elsewhere)}})
    for name in ("pv-own", "pv-outside"):
        await node.client.patch(core_v1.PersistentVolume, name, "", by_wherry)
    await node.create("writer", spec(volume, "echo kept > /data/file", securityContext={"fsGroup": 4321}))
    await node.create("escape", spec(outside))
    pod = await node.ready("writer")
    assert (folder / "file").read_text() == "kept\n" and (folder / "file").stat().st_gid == 4321
    target = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~local-volume/pv-own"
    assert mounts.is_mount_point(target) and target.samefile(folder)
    assert "is not a local-path volume of this node" in await node.event("escape", "FailedMount")
    await node.delete("writer")
    await node.gone("writer")
    assert not target.exists() and (folder / "file").read_text() == "kept\n"
    await node.create("reader", spec(volume, "cat /data/file"))
    assert await node.execute(await node.ready("reader"), "cat", "/data/file") == "kept\n"


async def test_a_pod_that_names_its_node_gets_no_volume_of_another_node(node: NodeUnderTest, tmp_path: Path) -> None:
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["other"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}}
    volume = await bound(node, "elsewhere", {"local": {"path": str(tmp_path)}}, nodeAffinity=affinity)
    await node.create("pod", spec(volume))
    message = await node.event("pod", "FailedMount")
    prefix = 'MountVolume.NodeAffinity check failed for volume "pv-elsewhere" : '
    assert message == prefix + "no matching NodeSelectorTerms"


async def test_nfs_is_mounted_by_mount_and_its_error_is_reported(
    node: NodeUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = {"name": "data", "nfs": {"server": "192.0.2.9", "path": "/export", "readOnly": True}}
    await node.create("fails", spec(inline))
    message = await node.event("fails", "FailedMount")
    pod = await node.get("fails")
    target = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~nfs/data"
    assert message.startswith('MountVolume.SetUp failed for volume "data" : mount failed: exit status ')
    assert f"Mounting arguments: -t nfs -o ro -- 192.0.2.9:/export {target}\nOutput: mount: " in message
    if not os.access("/sbin/mount.nfs", os.X_OK):
        assert message.endswith("mount.nfs is not installed on this node (package nfs-common or nfs-utils)")

    # This kernel has no NFS, so a mount of the test's own binds a folder where the real one would ask the server.
    export, tools = tmp_path / "export", tmp_path / "tools"
    export.mkdir()
    tools.mkdir()
    script = f'#!/bin/sh\necho "$@" >> {tools}/log\nfor last; do :; done\nexec /bin/mount --bind {export} "$last"\n'
    (tools / "mount").write_text(script)
    (tools / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin")
    source = {"nfs": {"server": "2001:db8::9", "path": "/export"}, "mountOptions": ["nfsvers=4.2", "hard"]}
    volume = await bound(node, "share", source)
    await node.create("web", spec(volume, "echo x > /data/file"))
    pod = await node.ready("web")
    assert (export / "file").read_text() == "x\n"
    target = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~nfs/pv-share"
    assert f"-t nfs -o nfsvers=4.2,hard -- [2001:db8::9]:/export {target}" in (tools / "log").read_text().splitlines()
    await node.delete("web")
    await node.gone("web")
    assert (export / "file").exists() and not target.exists() and not mounts.is_mount_point(target)
