"""Mounts requested from the runtime: images as volumes, and recursively read-only ones where it supports them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.pods.worker import PodWorker
from agent.podspec.environment import ContainerConfigError
from agent.volumes.container_mounts import recursive_read_only
from agent.volumes.image import folders_supported, supported
from agent.volumes.manager import VolumeManager
from cri.fake import FakeRuntime
from cri.messages import api
from kube.api import core_v1
from tests.support.fake_node import calls, container, create, waiting
from tests.support.node import DEADLINE, NodeUnderTest, eventually

DATA = "example.test/data:1"


def mounts_of(runtime: FakeRuntime, name: str) -> dict[str, Any]:
    """Return a pod's mounts by their path in the container."""
    requests = calls(runtime, "CreateContainer")
    request = next(r for r in requests if r.sandbox_config.metadata.name == name)
    return {mount.container_path: mount for mount in request.config.mounts}


async def test_an_image_is_pulled_and_mounted_by_the_runtime(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.images.publish(DATA)
    volume = {"name": "data", "image": {"reference": DATA, "pullPolicy": "IfNotPresent"}}
    mounts = [
        {"name": "data", "mountPath": "/whole"},
        {"name": "data", "mountPath": "/part", "subPath": "docs"},
    ]
    await create(node, "web", container(volumeMounts=mounts), volumes=[volume])
    await node.ready("web")
    whole, part = (mounts_of(runtime, "web")[path] for path in ("/whole", "/part"))
    assert whole.image.user_specified_image == part.image.user_specified_image == DATA
    assert whole.image.image and whole.readonly and not whole.host_path
    assert (whole.image_sub_path, part.image_sub_path) == ("", "docs")
    missing = {"name": "data", "image": {"reference": "example.test/none:1", "pullPolicy": "Never"}}
    await create(node, "never", container(volumeMounts=mounts[:1]), volumes=[missing])
    await node.wait("never", lambda pod: waiting(pod) == "ErrImageNeverPull")


async def test_a_mount_is_read_only_all_the_way_down_where_the_runtime_can(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    volume = {"name": "data", "hostPath": {"path": "/"}}
    below = {"name": "data", "mountPath": "/data", "readOnly": True}
    await create(
        node, "maybe", container(volumeMounts=[{**below, "recursiveReadOnly": "IfPossible"}]), volumes=[volume]
    )
    await create(node, "must", container(volumeMounts=[{**below, "recursiveReadOnly": "Enabled"}]), volumes=[volume])
    await node.ready("maybe")
    assert mounts_of(runtime, "maybe")["/data"].recursive_read_only is False
    pod = await node.wait("must", lambda pod: waiting(pod) == "CreateContainerConfigError")
    state = pod.status.container_statuses[0].state
    assert state is not None and state.waiting is not None
    assert state.waiting.message == (
        'volume "data" requested recursive read-only mode, but it is not supported by the runtime'
    )
    features = api.RuntimeHandlerFeatures(recursive_read_only_mounts=True)
    runtime.containers.handlers = [api.RuntimeHandler(name="", features=features)]

    async def known() -> bool:
        handlers = (await node.client.get(core_v1.Node, "node-1")).status.runtime_handlers
        return any(handler.features is not None and handler.features.recursive_read_only_mounts for handler in handlers)

    await eventually(known, "the node tells of it")
    await node.ready("must")
    assert mounts_of(runtime, "must")["/data"].recursive_read_only is True


@pytest.mark.parametrize(
    ("wanted", "read_only", "can", "result"),
    [
        (None, True, True, False),
        ("Disabled", True, True, False),
        ("Enabled", True, True, True),
        ("IfPossible", True, True, True),
        ("IfPossible", True, False, False),
        ("IfPossible", False, True, False),
    ],
)
def test_how_far_read_only_goes(wanted: str | None, read_only: bool, can: bool, result: bool) -> None:
    mount = core_v1.VolumeMount(name="data", mount_path="/data", recursive_read_only=wanted)
    assert recursive_read_only(mount, read_only=read_only, supported=can) is result


def test_an_impossible_mount_request_is_an_error() -> None:
    mount = core_v1.VolumeMount(name="data", mount_path="/data", recursive_read_only="Enabled")
    with pytest.raises(ContainerConfigError, match="not supported by the runtime"):
        recursive_read_only(mount, read_only=True, supported=False)


@pytest.mark.parametrize(
    ("runtime", "version", "can"),
    [
        ("containerd", "1.6.20~ds1", False),
        ("containerd", "v1.7.27", False),
        ("containerd", "v2.0.4", False),
        ("containerd", "v2.1.0", True),
        ("cri-o", "1.30.1", False),
        ("cri-o", "1.33.0", True),
        ("other", "1.0", True),
    ],
)
def test_runtimes_that_would_mount_nothing_are_distinguished(runtime: str, version: str, can: bool) -> None:
    assert supported(runtime, version) is can


@pytest.mark.parametrize(
    ("runtime", "version", "can"),
    [
        ("containerd", "2.1.9+unknown", False),
        ("containerd", "v2.2.0", True),
        ("cri-o", "1.32.0", False),
        ("x", "1", True),
    ],
)
def test_runtimes_that_would_mount_more_than_a_folder_are_distinguished(runtime: str, version: str, can: bool) -> None:
    assert folders_supported(runtime, version) is can


async def test_a_volume_that_only_an_ephemeral_container_uses_is_set_up_for_it(node: NodeUnderTest) -> None:
    await create(node, "web", container(), volumes=[{"name": "late", "emptyDir": {}}])
    pod = await node.ready("web")
    folder = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~empty-dir/late"
    assert not await asyncio.to_thread(folder.exists), "no container uses it"
    debug = {**container(name="debug"), "volumeMounts": [{"name": "late", "mountPath": "/late"}]}
    patch = {"spec": {"ephemeralContainers": [debug]}}
    await node.client.patch(core_v1.Pod, "web", "default", patch, subresource="ephemeralcontainers")

    def runs(pod: core_v1.Pod) -> bool:
        states = [status.state for status in pod.status.ephemeral_container_statuses]
        return any(state is not None and state.running is not None for state in states)

    await node.wait("web", runs)
    assert await asyncio.to_thread(folder.is_dir)


async def test_labels_that_change_while_volumes_are_set_up_are_shown(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount, mounted, updated = VolumeManager.mount, asyncio.Event(), asyncio.Event()
    update = PodWorker.update

    async def mount_slowly(volumes: VolumeManager, pod: core_v1.Pod) -> Any:
        found = await mount(volumes, pod)
        mounted.set()
        await updated.wait()  # another volume takes long
        return found

    def update_and_report(worker: PodWorker, pod: core_v1.Pod) -> None:
        update(worker, pod)
        if pod.metadata.labels:
            updated.set()

    monkeypatch.setattr(VolumeManager, "mount", mount_slowly)
    monkeypatch.setattr(PodWorker, "update", update_and_report)
    labels = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    token = {"path": "token", "expirationSeconds": 86400}
    volume = {"name": "about", "projected": {"sources": [{"downwardAPI": labels}, {"serviceAccountToken": token}]}}
    pod = await create(node, "web", volumes=[volume])
    async with asyncio.timeout(DEADLINE):
        await mounted.wait()
    await node.client.patch(core_v1.Pod, "web", "default", {"metadata": {"labels": {"colour": "blue"}}})
    await node.ready("web")
    shown = node.config.pods_dir / (pod.metadata.uid or "") / "volumes/kubernetes.io~projected/about/labels"

    async def is_shown() -> bool:
        return await asyncio.to_thread(shown.read_text) == 'colour="blue"'

    await eventually(is_shown, "the volume shows the new label")
