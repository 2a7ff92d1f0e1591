"""Images that are loaded while pods pull the same name in vain: with a real containerd and its errors."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images.credentials.keyring import Keyring
from agent.images.manager import ImageError, Images
from agent.metrics.kubelet_metrics import KubeletMetrics
from cri.client import Client
from cri.messages import PodSandboxConfig
from kube.api import core_v1, meta_v1
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.image_records import made

PORT = 5999
NAME = f"127.0.0.1:{PORT}/team/app:1"
SILENT = f"""
import socket
server = socket.create_server(("127.0.0.1", {PORT}))
print("listening", flush=True)
connection, _ = server.accept()
print("connected", flush=True)
input()
"""
"""A registry that answers nothing until a line comes, and then closes."""


@pytest.fixture
def containerd() -> Iterator[Containerd]:
    with start_containerd(f"loads-{os.getpid()}", load=[images.busybox()]) as daemon:
        yield daemon


@pytest.fixture
def registry(containerd: Containerd) -> Iterator[subprocess.Popen[str]]:
    command = ["nsenter", f"--net={containerd.netns}", "python3", "-c", SILENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_an_image_that_is_loaded_during_a_pull_in_vain_is_open_to_all(
    tmp_path: Path, containerd: Containerd, registry: subprocess.Popen[str]
) -> None:
    assert registry.stdout is not None and registry.stdin is not None
    assert await asyncio.to_thread(registry.stdout.readline) == "listening\n"
    async with Client(containerd.endpoint) as client:

        async def listed() -> list[tuple[str, list[str]]]:
            return [(i.id, [*i.repo_tags, *i.repo_digests]) for i in await client.images.list_images()]

        access = made(tmp_path)
        access.load_finished_pulls(await listed())
        recorder, startup = SimpleNamespace(event=lambda *_, **__: None), SimpleNamespace(image_pulled=lambda *_: None)
        node = Images(
            client,
            cast(Any, recorder),
            keyring=Keyring([]),
            access=access,
            metrics=KubeletMetrics(),
            startup=cast(Any, startup),
        )

        async def ensure(namespace: str, policy: str) -> str:
            pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace=namespace, uid=namespace))
            container = core_v1.Container(name="c", image=NAME, image_pull_policy=policy)
            return (await node.ensure(pod, container, "", [], PodSandboxConfig())).id

        pull = asyncio.create_task(ensure("other", "IfNotPresent"))
        assert await asyncio.to_thread(registry.stdout.readline) == "connected\n"
        socket = containerd.endpoint.removeprefix("unix://")
        tag = [
            "ctr",
            "-a",
            socket,
            "-n",
            "k8s.io",
            "images",
            "tag",
            images.BUSYBOX_IMAGE,
            NAME,
        ]  # lists it as an import does
        await asyncio.to_thread(subprocess.run, tag, check=True, capture_output=True)
        registry.stdin.write("\n")
        registry.stdin.flush()
        with pytest.raises(ImageError):
            await pull
        found = await client.images.image_status(NAME)
        assert found is not None and await ensure("owner", "Never") == found.id
        access.prune(await listed())
        assert access.open_to_all(NAME, found.id) and access.open_to_all(images.BUSYBOX_IMAGE, found.id)
        assert not list((tmp_path / "pulling").iterdir()) and not list((tmp_path / "pulled").iterdir())
