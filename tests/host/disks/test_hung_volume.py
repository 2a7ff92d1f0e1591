"""A volume whose file server is gone: its pod alone is concerned, and that can be deleted, too."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent import threads
from agent.config import AccessSettings
from agent.csi.layout import Layout
from agent.volumes import mounts
from agent.volumes.csi_volume import Volume
from cri.fake import FakeRuntime
from kube import process
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
        "access": AccessSettings(authorization_mode="AlwaysAllow", anonymous=True),
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

    async def requested() -> bool:
        await answers(node, "/stats/summary")
        return mount.requested()

    await eventually(requested, "nobody looks at the volume")


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


@pytest.mark.parametrize("force", [False, True], ids=["deleted", "forced"])
async def test_a_pod_with_an_nfs_volume_whose_server_is_gone_can_be_deleted(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """mount(8) is replaced: it puts a file server of the test where mount.nfs would put the export."""
    run, mounted = process.run, list[HungMount]()

    with ExitStack() as stack:

        async def instead(argv: Sequence[str], **options: Any) -> Any:
            if argv[0] != "mount" or "nfs" not in argv:
                return await run(argv, **options)
            mounted.append(stack.enter_context(hung_mount(Path(argv[-1]))))
            return subprocess.CompletedProcess(argv, 0, "", "")

        monkeypatch.setattr(process, "run", instead)
        volume = {"name": "data", "nfs": {"server": "192.0.2.1", "path": "/export"}}
        mount = {"name": "data", "mountPath": "/data"}
        await create(node, "hung", container(volumeMounts=[mount]), volumes=[volume])
        await node.ready("hung")
        [server] = mounted
        server.hang()
        await others_come_and_go(node, "other")
        await node.delete("hung", grace=0 if force else None)
        await others_come_and_go(node, "another")
        server.answer()
        await node.gone("hung")

        async def unmounted() -> bool:
            return not mounts.is_mount_point(server.path)

        await eventually(unmounted, "the volume stays mounted")


async def test_volumes_that_are_staged_and_hang_leave_the_threads_of_other_files_free(tmp_path: Path) -> None:
    threads.Threads().install()
    layout = Layout(tmp_path, tmp_path / "pods")
    volumes = [Volume(name=f"pv-{n}", driver="d.example", handle=f"h{n}", pod_volume="v") for n in range(threads.FILES)]
    with ExitStack() as stack:
        servers = []
        for volume in volumes:
            layout.write_staging_data(volume)
            servers.append(stack.enter_context(hung_mount(layout.staging(volume))))
        for mount in servers:
            mount.hang()
        # As an agent that has restarted does when a pod of the volume starts.
        again = [asyncio.create_task(asyncio.to_thread(layout.write_staging_data, volume)) for volume in volumes]
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(10):
                assert await asyncio.to_thread(Path.exists, tmp_path)
                await asyncio.gather(*again)
        finally:
            for mount in servers:
                mount.answer()
