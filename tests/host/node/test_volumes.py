"""Volumes on a real kernel: contents, modes, live updates, subPath, and what is left afterwards."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.volumes import mounts, subpath
from agent.volumes.payload import VolumeError
from kube.api import core_v1, meta_v1
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, eventually

TRAP = "trap 'exit 0' TERM; sleep 1000 & wait"


def pod_with(volumes: list[dict[str, Any]], volume_mounts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", TRAP], "volumeMounts": volume_mounts}
    return {"volumes": volumes, "containers": [container], **more}


def config_map(name: str, **data: str) -> core_v1.ConfigMap:
    return core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), data=data)


async def test_projected_files_have_their_contents_and_modes_and_follow_changes(node: NodeUnderTest) -> None:
    await node.client.create(config_map("conf", **{"a.txt": "one", "b.txt": "two"}))
    metadata = meta_v1.ObjectMeta(name="sec", namespace="default")
    await node.client.create(core_v1.Secret(metadata=metadata, data={"key": "aGlkZGVu"}))
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "sec", "secret": {"secretName": "sec", "defaultMode": 0o400}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"configMap": {"name": "conf", "items": [{"key": "a.txt", "path": "deep/er/a", "mode": 0o600}]}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                    {"configMap": {"name": "absent", "optional": True}},
                    {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
                ]
            },
        },
    ]
    volume_mounts = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes]
    await node.create("files", pod_with(volumes, volume_mounts), labels={"app": "shop", "tier": "x"})
    pod = await node.ready("files")
    text = await node.execute(
        pod,
        "sh",
        "-c",
        "cat /conf/a.txt /conf/b.txt /sec/key /all/deep/er/a; echo; cat /all/labels; echo;"
        "stat -L -c '%a' /sec/key /all/deep/er/a; readlink /conf/a.txt; touch /conf/x 2>&1; wc -c < /all/token;"
        "grep -c ' /sec tmpfs' /proc/mounts || mount | grep /sec",
    )
    lines = text.splitlines()
    assert lines[0] == "onetwohiddenone"
    assert lines[1:3] == ['app="shop"', 'tier="x"']
    assert lines[3:6] == ["400", "600", "..data/a.txt"]
    assert "Read-only" in lines[6] and int(lines[7]) > 100

    change = {"data": {"a.txt": "changed"}}
    await node.client.patch(core_v1.ConfigMap, "conf", "default", change)

    async def changed() -> bool:
        return await node.execute(pod, "cat", "/conf/a.txt", "/all/deep/er/a") == "changedchanged"

    await eventually(changed, "the files did not follow the ConfigMap")
    root = node.config.pods_dir / (pod.metadata.uid or "")
    assert root.is_dir()
    await node.delete("files")
    await node.gone("files")
    assert not root.exists() and not mounts.mount_points(root)


async def test_the_service_account_token_is_there_by_default(node: NodeUnderTest) -> None:
    await node.create("token", pod_with([], []))
    pod = await node.ready("token")
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    text = await node.execute(pod, "sh", "-c", f"cat {path}/namespace; echo; head -1 {path}/ca.crt; cat {path}/token")
    lines = text.splitlines()
    assert lines[0] == "default" and lines[1] == "-----BEGIN CERTIFICATE-----" and lines[2].count(".") == 2
    answer = await node.client.call("GET", "/version")
    assert answer


async def test_a_missing_config_map_keeps_the_pod_waiting_with_an_event(node: NodeUnderTest) -> None:
    volumes = [{"name": "conf", "configMap": {"name": "later"}}]
    await node.create("waits", pod_with(volumes, [{"name": "conf", "mountPath": "/conf"}]))
    assert await node.event("waits", "FailedMount") == (
        'MountVolume.SetUp failed for volume "conf" : configmap "later" not found'
    )
    pod = await node.wait("waits", lambda p: p.status.container_statuses)
    waiting = (pod.status.container_statuses[0].state or core_v1.ContainerState()).waiting
    assert waiting and waiting.reason == "ContainerCreating" and pod.status.phase == "Pending"
    await node.client.create(config_map("later", k="v"))
    pod = await node.ready("waits")
    assert await node.execute(pod, "cat", "/conf/k") == "v"


async def test_empty_dirs_of_disk_and_memory_and_sub_paths(node: NodeUnderTest) -> None:
    await node.client.create(config_map("single", **{"app.conf": "x=1"}))
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "single", "configMap": {"name": "single"}},
    ]
    volume_mounts = [
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/sub", "subPath": "a/b"},
        {"name": "disk", "mountPath": "/named", "subPathExpr": "pod-$(POD)"},
        {"name": "ram", "mountPath": "/ram"},
        {"name": "ram", "mountPath": "/part", "subPath": "part"},
        {"name": "single", "mountPath": "/etc/app.conf", "subPath": "app.conf"},
    ]
    spec = pod_with(volumes, volume_mounts)
    spec["containers"][0]["env"] = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    await node.create("dirs", spec)
    pod = await node.ready("dirs")
    script = (
        "echo hi > /sub/f; cat /disk/a/b/f; echo n > /named/g; cat /disk/pod-dirs/g; cat /etc/app.conf; echo;"
        "df -k /ram | tail -1 | awk '{print $2}' 2>/dev/null || true; stat -c %a /disk /ram /part;"
        "dd if=/dev/zero of=/ram/big bs=1k count=2000 2>&1 | grep -c 'No space'"
    )
    text = await node.execute(pod, "sh", "-c", script)
    assert text.splitlines()[:3] == ["hi", "n", "x=1"]
    assert text.splitlines()[-4:] == ["777", "1777", "1777", "1"]
    root = node.config.pods_dir / (pod.metadata.uid or "")
    await node.delete("dirs")
    await node.gone("dirs")
    assert not root.exists()


async def test_a_sub_path_that_leads_out_of_the_volume_by_a_link_is_refused(
    node: NodeUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.symlink("/etc", data / "out")
    volumes = [{"name": "data", "hostPath": {"path": str(data)}}]
    await node.create("escape", pod_with(volumes, [{"name": "data", "mountPath": "/d", "subPath": "out"}]))
    message = await node.event("escape", "Failed")
    assert message == 'Error: failed to prepare subPath for volumeMount "data" of container "main"'
    assert "is not within the volume path" in caplog.text
    await node.delete("escape")
    await node.gone("escape")


async def test_host_paths_are_checked_by_their_type(node: NodeUnderTest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    volumes = [{"name": "h", "hostPath": {"path": str(tmp_path / "file"), "type": "Directory"}}]
    await node.create("badpath", pod_with(volumes, [{"name": "h", "mountPath": "/h"}]))
    assert await node.event("badpath", "FailedMount") == (
        f'MountVolume.SetUp failed for volume "h" : hostPath type check failed: {tmp_path}/file is not a directory'
    )


async def test_hosts_and_resolver_files_are_the_pods_own(node: NodeUnderTest) -> None:
    spec = pod_with([], [], hostAliases=[{"ip": "10.1.2.3", "hostnames": ["one.example", "two.example"]}])
    spec |= {"hostname": "h", "subdomain": "s", "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}
    await node.create("names", spec)
    pod = await node.ready("names")
    text = await node.execute(pod, "cat", "/etc/hosts")
    assert f"{pod.status.pod_ip}\th.s.default.svc.cluster.local\th\n" in text
    assert "# Entries added by HostAliases.\n10.1.2.3\tone.example\ttwo.example\n" in text
    resolver = (await node.execute(pod, "cat", "/etc/resolv.conf")).splitlines()
    assert resolver[0].startswith("search default.svc.cluster.local svc.cluster.local cluster.local")
    assert "nameserver 10.96.0.10" in resolver and "options ndots:2" in resolver
    assert await node.execute(pod, "hostname") == "h\n"


async def test_a_sub_path_never_leaves_the_volume_while_its_parts_are_swapped(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume / "real", outside):
        folder.mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (volume / "real/inside").write_text("inside")
    (volume / "link").symlink_to(outside)
    name = volume / "sub"
    (volume / "real").rename(name)
    stop = threading.Event()

    libc = ctypes.CDLL(None)
    names = [os.fsencode(path) for path in (name, volume / "link")]

    def swap() -> None:
        # What a hostile container does: the name is a folder one moment and a link out of the volume the next.
        while not stop.is_set():
            assert libc.renameat2(-100, names[0], -100, names[1], 2) == 0  # AT_FDCWD, RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    bound = refused = 0
    target = tmp_path / "target"
    try:
        for _ in range(500):
            try:
                await asyncio.to_thread(subpath.bind, volume, "sub", target, mounts.MountTable(target))
            except (VolumeError, OSError):
                refused += 1
                continue
            bound += 1
            assert not (target / "secret").exists(), "the container got hold of the outside"
            mounts.unmount(target)
    finally:
        stop.set()
        thread.join()
        for point in mounts.mount_points(tmp_path):
            mounts.unmount(point)
    assert bound and refused, (bound, refused)


def test_what_is_mounted_below_a_sub_path_is_not_bound(tmp_path: Path) -> None:
    below, target = tmp_path / "volume" / "sub" / "below", tmp_path / "target"
    below.mkdir(parents=True)
    (tmp_path / "volume" / "sub" / "own").touch()
    try:
        mounts.mount_tmpfs(below)
        (below / "secret").touch()
        subpath.bind(tmp_path / "volume", "sub", target, mounts.MountTable(target))
        assert (target / "own").exists()
        assert list((target / "below").iterdir()) == []
    finally:
        for point in mounts.mount_points(tmp_path):
            mounts.unmount(point)
