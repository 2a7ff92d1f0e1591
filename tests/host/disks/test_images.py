"""The runtime's disk full while an image is pulled: the pull says so, unused images go, and the pod starts by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config import EvictionSettings, ImageSettings
from agent.images import garbage_collection
from kube.api import core_v1
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.control import api_server
from tests.support.disks import MI, SmallDisk, ext4_disk
from tests.support.node import FastClock, agent_node, eventually
from tests.support.registry import Registry, machine, registry

LARGE, LEFT = 8 * MI, 4 * MI


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with ext4_disk(tmp_path / "small", 64 * MI) as disk:
        yield disk


@pytest.fixture
def containerd(disk: SmallDisk) -> Iterator[Containerd]:
    with start_containerd(f"agent-disk-{os.getpid()}", root=disk.path / "root") as daemon:
        yield daemon


@pytest.fixture
def served(containerd: Containerd) -> Iterator[Registry]:
    """Return a registry whose image is no longer in the containerd that pushed it."""
    with registry(machine(containerd), 5002) as made:
        name = f"{made.host}/large:1"
        made.push(images.Image(name, files={"large": os.urandom(LARGE)}))
        machine(containerd).ctr("--namespace", "push", "images", "rm", "--sync", name)
        yield made


def left_over(containerd: Containerd) -> list[str]:
    """Return containerd's leases, unfinished downloads and snapshots that were to become a layer."""
    leases = containerd.ctr("leases", "ls", "-q").stdout.splitlines()
    downloads = containerd.ctr("content", "active").stdout.splitlines()[1:]
    snapshots = containerd.ctr("snapshots", "ls").stdout.splitlines()
    return [*leases, *downloads, *(line for line in snapshots if "extract-" in line)]


async def test_a_pull_that_does_not_fit_reports_it_and_succeeds_once_unused_images_have_gone(
    tmp_path: Path, disk: SmallDisk, containerd: Containerd, served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "PERIOD_SECONDS", 30.0)
    unused, large = "unused.example/large:1", f"{served.host}/large:1"
    containerd.load([images.Image(unused, files={"unused": os.urandom(LARGE)})])
    disk.fill(leave=LEFT)
    # The unused image goes only some two seconds of the test's later, so that the first pull fails.
    changes: dict[str, Any] = {"eviction": EvictionSettings(hard={}), "images": ImageSettings(minimum_age=60.0)}
    async with (
        api_server(tmp_path / "control") as api,
        agent_node(tmp_path / "node", containerd, api, clock=FastClock(30.0), **changes) as node,
    ):
        body = {"name": "main", "image": large, "command": ["sh", "-c", "sleep 1000"]}
        await node.create("p", {"automountServiceAccountToken": False, "containers": [body]})
        text = await node.event("p", "Failed")
        assert text.startswith(f'Failed to pull image "{large}"') and "no space left on device" in text
        await node.ready("p")
        reasons = [reason for reason, _ in await node.events("p")]
        assert "BackOff" in reasons and reasons[-1] == "Started"
        assert unused not in containerd.ctr("images", "ls", "-q").stdout
        await node.delete("p", grace=0)
        await node.gone("p")

    async def clean() -> bool:
        return not left_over(containerd)

    await eventually(clean, f"left: {left_over(containerd)}")


async def test_a_full_disk_of_images_is_pressure_although_the_agents_disk_has_space(
    tmp_path: Path, disk: SmallDisk, containerd: Containerd
) -> None:
    unused = "unused.example/large:1"
    containerd.load([images.Image(unused, files={"unused": os.urandom(LARGE)})])
    changes: dict[str, Any] = {
        "eviction": EvictionSettings(
            hard={"imagefs.available": "15%", "nodefs.available": "0%"}, pressure_transition=30.0
        ),
        "images": ImageSettings(minimum_age=0.0, gc_high_percent=100),
    }
    async with (
        api_server(tmp_path / "control") as api,
        agent_node(tmp_path / "node", containerd, api, clock=FastClock(30.0), **changes) as node,
    ):

        async def pressure() -> str:
            found = await node.client.get(core_v1.Node, node.config.node_name)
            return next(c.status for c in found.status.conditions if c.type == "DiskPressure")

        async def starts() -> bool:
            return await pressure() == "True"

        async def ends() -> bool:
            return await pressure() == "False"

        async def removed() -> bool:
            return unused not in containerd.ctr("images", "ls", "-q").stdout

        assert await pressure() == "False"
        disk.fill(leave=MI)
        await eventually(starts, "no pressure")
        await eventually(removed, "the unused image stays")
        disk.free()
        await eventually(ends, "the pressure stays")
