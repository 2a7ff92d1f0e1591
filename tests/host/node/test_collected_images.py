"""Private images that are collected while a pull of them waits, with a real containerd and real image garbage collection."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.images.garbage_collection import ImageDisk, ImageGC
from cri.client import Client
from kube.clock import SYSTEM
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.image_pods import docker_hub_at, hub_secret, manager, outcome
from tests.support.image_records import made
from tests.support.registry import machine, registry

PORT, SILENT_PORT = 5001, 5010
IMAGE = "team/private:1"
SILENT = f"""
import socket
server, taken = socket.create_server(("127.0.0.1", {SILENT_PORT})), []
print("listening", flush=True)
while True:
    taken.append(server.accept())
    print("connected", flush=True)
"""
"""A registry that answers nothing."""


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[Containerd]:
    (tmp_path / "hosts").mkdir()
    extra = docker_hub_at(tmp_path / "hosts", PORT)
    with (
        start_containerd(f"collected-{os.getpid()}", load=[images.pause()], extra_config=extra) as daemon,
        registry(machine(daemon), PORT, private=True) as private,
    ):
        private.push(images.busybox_of(private.host, IMAGE))
        yield daemon


@pytest.fixture
def silent(containerd: Containerd) -> Iterator[subprocess.Popen[str]]:
    command = ["nsenter", f"--net={containerd.netns}", sys.executable, "-c", SILENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "listening\n"
            yield process
        finally:
            process.kill()


async def test_a_private_image_that_is_collected_while_its_pull_waits_stays_closed(
    tmp_path: Path, containerd: Containerd, silent: subprocess.Popen[str]
) -> None:
    assert silent.stdout is not None
    async with Client(containerd.endpoint) as client:
        access = made(tmp_path / "records")
        node = manager(client, access)
        collection = ImageGC(
            client,
            SYSTEM,
            high=85,
            low=0,
            minimum_age=0.0,
            disk=lambda _: ImageDisk(100 << 30, 1 << 30),
            seen=access.prune,
        )
        image_id = await outcome(node, "owner", IMAGE, "Always", hub_secret())
        assert image_id.startswith("sha256:")
        await collection.free(0)  # lists the image
        first = asyncio.create_task(outcome(node, "other", f"127.0.0.1:{SILENT_PORT}/x:1", "Always"))
        try:
            assert await asyncio.to_thread(silent.stdout.readline) == "connected\n"
            second = asyncio.create_task(outcome(node, "owner", IMAGE, "Always", hub_secret()))
            while not node._slots._waiting:
                await asyncio.sleep(0.01)
            await collection.free(100 << 30)
            await collection.free(0)  # lists the images without this one
            assert not list((tmp_path / "records/pulled").iterdir())
        finally:
            first.cancel()
        assert await second == image_id
        assert await outcome(node, "another", IMAGE, "Never") == "ErrImageNeverPull"
        again = manager(client, made(tmp_path / "records"))
        assert await outcome(again, "another", IMAGE, "Never") == "ErrImageNeverPull"
