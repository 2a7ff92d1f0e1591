"""Writes of the runtime's disk that fail at fsync: running pods continue, new ones report the reason, and all recover
without intervention.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import EvictionSettings
from kube.api import core_v1
from tests.support.containerd import Containerd, start_containerd
from tests.support.control import api_server
from tests.support.disks import MI, FailingDisk, failing_disk
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import FastClock, agent_node


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path / "disk", 96 * MI, inodes=8192) as disk:
        yield disk


@pytest.fixture
def containerd(disk: FailingDisk) -> Iterator[Containerd]:
    with start_containerd(f"agent-eio-{os.getpid()}", root=disk.path / "root") as daemon:
        yield daemon


def sleeping() -> dict[str, Any]:
    body = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", "sleep 1000"]}
    return {"automountServiceAccountToken": False, "containers": [body]}


def containers(pod: core_v1.Pod) -> list[tuple[str | None, int]]:
    return [(status.container_id, status.restart_count) for status in pod.status.container_statuses]


async def test_no_container_restarts_and_a_new_pod_starts_once_writes_of_the_runtimes_disk_succeed_again(
    tmp_path: Path, disk: FailingDisk, containerd: Containerd
) -> None:
    async with (
        api_server(tmp_path / "control") as api,
        agent_node(
            tmp_path / "node", containerd, api, clock=FastClock(30.0), eviction=EvictionSettings(hard={})
        ) as node,
    ):
        await node.create("running", sleeping())
        before = await node.ready("running")
        disk.fail()
        await node.create("new", sleeping())
        text = await node.event("new", "FailedCreatePodSandBox")
        # The loop device reports either, by the kernel's version.
        assert "no space left on device" in text or "input/output error" in text
        disk.heal()
        await node.ready("new")
        assert containers(await node.ready("running")) == containers(before)
        for name in ("running", "new"):
            await node.delete(name, grace=0)
            await node.gone(name)
