"""An agent whose own disk is full or read-only: running pods continue, new ones report the reason, and all recover without
intervention.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import EvictionSettings
from cri.fake import FakeRuntime
from kube.api import core_v1
from tests.support.control import ApiUnderTest, api_server
from tests.support.disks import FailingDisk, SmallDisk, ext4_disk, failing_disk
from tests.support.fake_node import SPEED, container, create, waiting
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import FastClock, NodeUnderTest, agent_node


@pytest.fixture
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def disk(tmp_path: Path, how: str) -> Iterator[SmallDisk | FailingDisk]:
    with failing_disk(tmp_path) if how == "failing" else ext4_disk(tmp_path / "small") as disk:
        yield disk


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    clock = FastClock(SPEED)
    async with FakeRuntime(tmp_path / "runtime.sock", clock.sleep, clock.nanoseconds) as runtime:
        runtime.images.add(BUSYBOX_IMAGE)
        yield runtime


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path / "control") as server:
        yield server


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, disk: SmallDisk | FailingDisk
) -> AsyncIterator[NodeUnderTest]:
    # Without eviction: a full disk of the agent's is not yet one that pods have filled.
    changes: dict[str, Any] = {
        "root_dir": disk.path / "kubelet",
        "cert_dir": tmp_path / "pki",
        "eviction": EvictionSettings(hard={}),
    }
    async with agent_node(tmp_path / "node", runtime, api, clock=FastClock(SPEED), **changes) as node:
        yield node


def refuse(disk: SmallDisk | FailingDisk, how: str, on: bool) -> None:
    if isinstance(disk, FailingDisk):
        disk.fail() if on else disk.heal()
    elif how == "read-only":
        disk.read_only(on)
    elif on:
        disk.fill()
    else:
        disk.free()


def again(pod: core_v1.Pod) -> bool:
    """Return whether the container runs for the second time; between its creation and its start it waits."""
    [status] = pod.status.container_statuses
    return status.restart_count == 1 and bool(status.state and status.state.running)


@pytest.mark.parametrize("how", ["full", "read-only"], indirect=True)
async def test_pods_run_on_and_new_ones_start_once_the_disk_takes_them(
    node: NodeUnderTest, disk: SmallDisk, runtime: FakeRuntime, how: str
) -> None:
    await create(node, "running")
    before = await node.ready("running")
    refuse(disk, how, True)
    volume = {"name": "own", "emptyDir": {}}
    await create(node, "new", container(volumeMounts=[{"name": "own", "mountPath": "/own"}]), volumes=[volume])
    output = await node.event("new", "Failed")
    why = "no space left on device" if how == "full" else "read-only file system"
    assert output.startswith(f"error making pod data directories: mkdir {node.config.root_dir}/pods/") and why in output
    # A container that ends is reported. It starts again if that takes no space: its pod's files are there.
    [status] = before.status.container_statuses
    await runtime.containers.crash((status.container_id or "").partition("://")[2], exit_code=3)
    if how == "full":
        after = await node.wait("running", again)
        [status] = after.status.container_statuses
    else:
        after = await node.wait("running", lambda pod: waiting(pod) == "CreateContainerConfigError")
        [status] = after.status.container_statuses
        assert status.state and status.state.waiting and why in (status.state.waiting.message or "").lower()
    assert status.last_state and status.last_state.terminated and status.last_state.terminated.exit_code == 3
    await create(node, "other")
    await node.delete("other")
    await node.gone("other")
    refuse(disk, how, False)
    await node.ready("new")
    await node.ready("running")


@pytest.mark.parametrize("how", ["failing"], indirect=True)
async def test_no_pod_ends_or_is_stuck_where_writes_and_fsync_fail(
    node: NodeUnderTest, disk: FailingDisk, runtime: FakeRuntime, how: str
) -> None:
    await create(node, "running")
    before = await node.ready("running")
    refuse(disk, how, True)
    volume = {"name": "own", "emptyDir": {}}
    await create(node, "new", container(volumeMounts=[{"name": "own", "mountPath": "/own"}]), volumes=[volume])
    await create(node, "other")
    await node.wait("other", lambda pod: pod.status.start_time is not None)
    await node.delete("other")
    await node.gone("other")
    after = await node.ready("running")
    assert after.status.container_statuses == before.status.container_statuses
    refuse(disk, how, False)
    await node.ready("new")
    await node.delete("new")
    await node.gone("new")
    await node.stop()
    await node.start()
    after = await node.ready("running")
    assert [status.restart_count for status in after.status.container_statuses] == [0]
