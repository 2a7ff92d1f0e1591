"""Features of pods on containerd 2 with a newer runc: user namespaces, image volumes and more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.images.garbage_collection import ImageDisk, ImageGC
from agent.runtime_messages import container_record
from agent.volumes import mounts
from cri.client import Client as RuntimeClient
from kube.api import core_v1, meta_v1
from kube.clock import SYSTEM
from kube.json_object import Object
from kube.process import run
from tests.support import runtimes
from tests.support.containerd import Containerd
from tests.support.images import BUSYBOX_IMAGE, Image
from tests.support.node import NodeUnderTest
from tests.support.runtimes import lacks, needs

SLEEP = "trap 'exit 0' TERM; sleep 1000 & wait"


def shell(name: str = "main", **more: Any) -> Object:
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", SLEEP], **more}


def mount(name: str, path: str, **more: Any) -> Object:
    return {"name": name, "mountPath": path, **more}


async def features(node: NodeUnderTest) -> core_v1.NodeRuntimeHandlerFeatures:
    """Features of the node's default handler."""
    status = (await node.client.get(core_v1.Node, "node-1")).status
    (found,) = [handler.features for handler in status.runtime_handlers if not handler.name]
    assert found is not None
    return found


@pytest.fixture
def data(containerd: Containerd) -> Object:
    """The source of a volume: an image that is there."""
    containerd.load([Image("wherry.test/data:1", files={"www/page/index.html": b"hello\n", "model": b"weights\n"})])
    return {"reference": "wherry.test/data:1", "pullPolicy": "Never"}


@needs(*runtimes.USER_NAMESPACES)
async def test_a_pod_with_users_of_its_own_is_root_inside_and_nobody_on_the_node(node: NodeUnderTest) -> None:
    assert (await features(node)).user_namespaces is True
    metadata = meta_v1.ObjectMeta(name="settings", namespace="default")
    await node.client.create(core_v1.ConfigMap(data={"key": "value"}, metadata=metadata))
    volumes: list[Object] = [
        {"name": "data", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "settings", "configMap": {"name": "settings", "defaultMode": 0o400}},
    ]
    containers = [
        shell(volumeMounts=[mount("data", "/data"), mount("memory", "/memory"), mount("settings", "/settings")]),
        shell("other", securityContext={"runAsUser": 1000}, volumeMounts=[mount("data", "/data")]),
    ]
    await node.create("own", {"hostUsers": False, "volumes": volumes, "containers": containers})
    pod = await node.ready("own")
    inside = await node.execute(pod, "sh", "-c", "cat /proc/self/uid_map /proc/self/gid_map; id -u", container="main")
    assert [line.split() for line in inside.splitlines()] == [["0", "65536", "65536"]] * 2 + [["0"]]
    assert await node.execute(pod, "readlink", "/proc/1/ns/user", container="main") == await node.execute(
        pod, "readlink", "/proc/1/ns/user", container="other"
    )
    assert _host_users(pod) == {"main": 65536, "other": 65536 + 1000}

    # What it writes is root's on the disk and in the container: the mounts are mapped, not the files.
    await node.execute(
        pod, "sh", "-c", "cat /settings/key && echo x > /data/mine && echo y > /memory/mine", container="main"
    )
    folder = node.config.pods_dir / (pod.metadata.uid or "") / "volumes"
    assert (folder / "kubernetes.io~empty-dir/data/mine").stat().st_uid == 0
    owners = await node.execute(pod, "stat", "-c", "%u", "/data/mine", "/settings/key", "/etc/hosts", container="main")
    assert owners.split() == ["0", "0", "0"]
    # It is root over what is its own and nothing else.
    await node.execute(pod, "sh", "-c", "chown 1000 /data/mine && ! mknod /tmp/disk b 8 0", container="main")

    await node.create("second", {"hostUsers": False, "containers": [shell()]})
    second = await node.ready("second")
    assert _host_users(second) == {"main": 2 * 65536}
    await node.stop()
    await node.start()
    for name in ("own", "second"):
        await node.delete(name)
        await node.gone(name)


@lacks(*runtimes.USER_NAMESPACES)
async def test_a_pod_with_users_of_its_own_waits_where_the_runtime_cannot_give_them(node: NodeUnderTest) -> None:
    await node.create("own", {"hostUsers": False, "containers": [shell()]})
    assert "runtime does not support user namespaces" in await node.event("own", "FailedCreatePodSandBox")


@needs(*runtimes.IMAGE_VOLUMES)
async def test_an_image_is_a_volume_that_is_read_only(node: NodeUnderTest, data: Object) -> None:
    volumes = [{"name": "image", "image": data}]
    await node.create("web", {"volumes": volumes, "containers": [shell(volumeMounts=[mount("image", "/image")])]})
    pod = await node.ready("web")
    assert await node.execute(pod, "cat", "/image/model", "/image/www/page/index.html") == "weights\nhello\n"
    assert await node.execute(pod, "sh", "-c", "touch /image/x 2>/dev/null || echo no") == "no\n"

    # No container runs from it, and yet it is in use.
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:

        async def there() -> set[str]:
            return {image.id for image in await runtime.images.list_images() if "wherry.test/data:1" in image.repo_tags}

        ids = await there()
        (container_id,) = ((s.container_id or "").partition("://")[2] for s in pod.status.container_statuses)
        record = container_record(await runtime.runtime.container_status(container_id))
        assert ids and record.mounted_images == ids
        for mounted, left in ((ids, ids), (set[str](), set[str]())):
            full = ImageGC(runtime, SYSTEM, high=85, low=80, minimum_age=0, disk=_full, mounted=mounted.copy)
            await full.collect()
            assert await there() == left
    await node.delete("web", 0)
    await node.gone("web")

    volumes = [{"name": "image", "image": {"reference": "wherry.test/none:1", "pullPolicy": "Never"}}]
    await node.create("none", {"volumes": volumes, "containers": [shell(volumeMounts=[mount("image", "/image")])]})
    assert (await waiting(node, "none"))[0] == "ErrImageNeverPull"


@needs(*runtimes.FOLDERS_OF_IMAGES)
async def test_a_folder_of_an_image_is_a_volume(node: NodeUnderTest, data: Object) -> None:
    volumes = [{"name": "image", "image": data}]
    part, wrong = (mount("image", "/part", subPath=path) for path in ("www/page", "nowhere"))
    await node.create("web", {"volumes": volumes, "containers": [shell(volumeMounts=[part])]})
    assert await node.execute(await node.ready("web"), "ls", "/part") == "index.html\n"
    await node.create("broken", {"volumes": volumes, "containers": [shell(volumeMounts=[wrong])]})
    assert (await waiting(node, "broken"))[0] in ("CreateContainerError", "RunContainerError")


@lacks(*runtimes.FOLDERS_OF_IMAGES)
async def test_a_folder_of_an_image_is_refused_where_the_runtime_would_mount_everything(
    node: NodeUnderTest, data: Object
) -> None:
    part = mount("image", "/part", subPath="www/page")
    await node.create(
        "web", {"volumes": [{"name": "image", "image": data}], "containers": [shell(volumeMounts=[part])]}
    )
    reason, message = await waiting(node, "web")
    assert reason == "CreateContainerConfigError" and "not supported by the container runtime containerd" in message


@lacks(*runtimes.IMAGE_VOLUMES)
async def test_images_as_volumes_are_refused_where_the_runtime_would_mount_nothing(
    node: NodeUnderTest, data: Object
) -> None:
    volumes = [{"name": "image", "image": data}]
    await node.create("web", {"volumes": volumes, "containers": [shell(volumeMounts=[mount("image", "/image")])]})
    reason, message = await waiting(node, "web")
    assert reason == "CreateContainerConfigError" and "image volumes are not supported by" in message


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Path]:
    """A folder with another file system below."""
    folder = tmp_path / "nested"
    (folder / "below").mkdir(parents=True)
    yield folder
    for point in mounts.mount_points(folder):
        mounts.unmount(point)


@needs(*runtimes.RECURSIVE_READ_ONLY)
async def test_a_read_only_mount_is_recursively_read_only_if_requested(node: NodeUnderTest, nested: Path) -> None:
    assert (await features(node)).recursive_read_only_mounts is True
    await run(["mount", "-t", "tmpfs", "below", str(nested / "below")])
    wanted = {"whole": "Enabled", "possible": "IfPossible", "top": "Disabled"}
    containers = [
        shell(name, volumeMounts=[mount("data", "/data", readOnly=True, recursiveReadOnly=how)])
        for name, how in wanted.items()
    ]
    volume = {"name": "data", "hostPath": {"path": str(nested)}}
    await node.create("deep", {"volumes": [volume], "containers": containers})
    pod = await node.ready("deep")
    write = ("sh", "-c", "touch /data/x 2>/dev/null && echo top; touch /data/below/$0 2>/dev/null && echo below; true")
    output = {name: await node.execute(pod, *write, container=name) for name in wanted}
    assert output == {"whole": "", "possible": "", "top": "below\n"}
    shown = {
        status.name: m.recursive_read_only
        for status in pod.status.container_statuses
        for m in status.volume_mounts
        if m.name == "data"
    }
    assert shown == {"whole": "Enabled", "possible": "Enabled", "top": "Disabled"}
    await node.delete("deep", 0)
    await node.gone("deep")


@needs(*runtimes.GROUPS_POLICY)
async def test_strict_groups_are_those_of_the_pod_without_those_of_the_image(
    node: NodeUnderTest, containerd: Containerd
) -> None:
    status = (await node.client.get(core_v1.Node, "node-1")).status
    assert status.features is not None and status.features.supplemental_groups_policy is True
    files = {
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home:/bin/sh\n",
        "etc/group": b"root:x:0:\nalice:x:1000:\nstaff:x:50000:alice\n",
    }
    containerd.load([Image("wherry.test/groups:1", files=files)])
    for policy, groups in (("Strict", [1000, 60000]), ("Merge", [1000, 50000, 60000])):
        context = {"runAsUser": 1000, "supplementalGroups": [60000], "supplementalGroupsPolicy": policy}
        container = {**shell(), "image": "wherry.test/groups:1", "imagePullPolicy": "Never"}
        await node.create(policy.lower(), {"securityContext": context, "containers": [container]})
        pod = await node.ready(policy.lower())
        assert sorted(map(int, (await node.execute(pod, "id", "-G")).split())) == groups
        user = pod.status.container_statuses[0].user
        assert user is not None and user.linux is not None
        assert (user.linux.uid, user.linux.gid, sorted(user.linux.supplemental_groups)) == (1000, 1000, groups)
        await node.delete(policy.lower(), 0)


async def waiting(node: NodeUnderTest, name: str) -> tuple[str, str]:
    """Wait until the pod's container cannot start, and return why: reason and message."""

    def why(pod: core_v1.Pod) -> tuple[str, str]:
        statuses = pod.status.container_statuses
        found = statuses[0].state.waiting if statuses and statuses[0].state else None
        return (found.reason or "", found.message or "") if found else ("", "")

    return why(await node.wait(name, lambda pod: why(pod)[0] not in ("", "ContainerCreating", "PodInitializing")))


def _full(mountpoint: str) -> ImageDisk:
    return ImageDisk(100 << 30, 1 << 30)


def _host_users(pod: core_v1.Pod) -> dict[str, int]:
    """Return as whom each container's first process runs on the node."""
    ids = {(s.container_id or "").partition("://")[2]: s.name for s in pod.status.container_statuses}
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "cgroup").read_text()
                status = (folder / "status").read_text()
            except OSError:
                continue
            owner = next((name for id, name in ids.items() if id in text), None)
            if owner is not None and "trap" in (folder / "cmdline").read_text():
                found[owner] = int(re.findall(r"^Uid:\t(\d+)", status, re.MULTILINE)[0])
    return found
