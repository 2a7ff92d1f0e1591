"""A volume whose file server is gone: its pod alone is concerned, and that can be deleted, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cri.fake import FakeRuntime
from kube.api import core_v1
from tests.support.control import api_server
from tests.support.fake_node import SPEED, container, create
from tests.support.hung_mount import HungMount, hung_mount
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually
from tests.support.ports import reserve

SHOWN = ("/healthz", "/metrics", "/metrics/resource", "/stats/summary", "/pods")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    clock = FastClock(SPEED)
    async with FakeRuntime(tmp_path / "runtime.sock", clock.sleep, clock.nanoseconds) as runtime:
        runtime.images.add(BUSYBOX_IMAGE)
        yield runtime


@pytest.fixture
async def node(tmp_path: Path, runtime: FakeRuntime) -> AsyncIterator[NodeUnderTest]:
    (port,) = reserve()
    changes: dict[str, Any] = {
        "enable_server": True,
        "port": port,
        "authorization_mode": "AlwaysAllow",
        "anonymous": True,
        "cgroup_root": "/",
    }
    async with (
        api_server(tmp_path / "control") as api,
        agent_node(tmp_path / "node", runtime, api, clock=FastClock(SPEED), **changes) as node,
    ):
        yield node


async def with_volume(node: NodeUnderTest, name: str) -> Path:
    """Start a pod with a volume and return the volume's folder."""
    mount = {"name": "data", "mountPath": "/data"}
    await create(node, name, container(volumeMounts=[mount]), volumes=[{"name": "data", "emptyDir": {}}])
    pod = await node.ready(name)
    return node.config.root_dir / "pods" / (pod.metadata.uid or "") / "volumes/kubernetes.io~empty-dir/data"


async def answers(node: NodeUnderTest, path: str) -> str:
    url = f"https://127.0.0.1:{node.config.port}{path}"
    async with asyncio.timeout(30), aiohttp.ClientSession() as http, http.get(url, ssl=False) as answer:
        assert answer.status == 200, (path, await answer.text())
        return await answer.text()


async def others_come_and_go(node: NodeUnderTest, name: str) -> None:
    await with_volume(node, name)
    await node.delete(name)
    await node.gone(name)


async def looked_at(node: NodeUnderTest, mount: HungMount) -> None:
    """Request metrics until those read before the volume hung are too old."""

    async def asked() -> bool:
        await answers(node, "/stats/summary")
        return mount.asked()

    await eventually(asked, "nobody looks at the volume")


@pytest.mark.parametrize("force", [False, True], ids=["deleted", "forced"])
async def test_other_pods_and_the_agents_ports_do_not_wait_for_a_volume_that_hangs(
    node: NodeUnderTest, force: bool
) -> None:
    with hung_mount(await with_volume(node, "hung")) as mount:
        mount.hang()
        for path in SHOWN:
            await answers(node, path)
        await looked_at(node, mount)
        await others_come_and_go(node, "other")
        await node.delete("hung", grace=0 if force else None)
        await others_come_and_go(node, "another")
        for path in SHOWN:
            await answers(node, path)
        mount.answer()
        await node.gone("hung")


async def test_an_agent_that_starts_while_a_volume_hangs_is_ready_and_serves_other_pods(node: NodeUnderTest) -> None:
    with hung_mount(await with_volume(node, "hung")) as mount:
        mount.hang()
        await node.stop()
        await node.start()
        await others_come_and_go(node, "other")
        for path in SHOWN:
            await answers(node, path)
        assert (await node.get("hung")).status.phase == "Running"
        mount.answer()
        await node.delete("hung")
        await node.gone("hung")
        assert [pod.metadata.name for pod in (await node.client.list(core_v1.Pod, "default")).items] == []
