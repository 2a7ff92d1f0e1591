"""Cost of pods in the container runtime only: RunPodSandbox, CreateContainer, StartContainer; one at a time, and 30 at once.

    python -m bench.floor unix:///run/wherry/containerd.sock IMAGE        prints one JSON object; medians, seconds

These are the agent's calls, by the same client, without the agent: the minimum time to start a pod on this machine. The burst
starts four pods at a time: containerd and runc do not process more in parallel, and with more each pod waits for all others.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from cri.client import Client
from cri.messages import api

PODS = 8
BURST, AT_ONCE = 30, 4


async def main() -> None:
    endpoint, image = sys.argv[1:3]
    times: dict[str, list[float]] = {"sandbox": [], "create": [], "start": []}
    async with Client(endpoint) as client:
        for number in range(PODS):
            with tempfile.TemporaryDirectory() as logs:
                await one(client, number, image, logs, times)
        burst = await many(client, image)
    forget_cgroups()
    medians = {f"floor_{name}": statistics.median(values) for name, values in times.items()}
    print(json.dumps({**medians, "floor_pod_start": sum(medians.values()), **burst}))


def forget_cgroups() -> None:
    """Take the cgroups of the measured pods away; the runtime leaves the one above them."""
    for top in Path("/sys/fs/cgroup").glob("*/wherry-floor"):
        for folder, _, _ in os.walk(top, topdown=False):
            os.rmdir(folder)
    shared = Path("/sys/fs/cgroup/wherry-floor")
    if shared.exists():
        shared.rmdir()


async def many(client: Client, image: str) -> dict[str, float]:
    """Make a burst of pods, and take it down; pods a second."""
    turn = asyncio.Semaphore(AT_ONCE)
    made: list[str] = []

    async def make(number: int, logs: str) -> None:
        async with turn:
            sandbox, container = configurations(number, image, logs)
            sandbox_id = await client.runtime.run_pod_sandbox(sandbox)
            made.append(sandbox_id)
            container_id = await client.runtime.create_container(sandbox_id, container, sandbox)
            await client.runtime.start_container(container_id)

    async def remove(sandbox_id: str) -> None:
        async with turn:
            await client.runtime.stop_pod_sandbox(sandbox_id)
            await client.runtime.remove_pod_sandbox(sandbox_id)

    with tempfile.TemporaryDirectory() as logs:
        began = time.perf_counter()
        await asyncio.gather(*(make(100 + number, logs) for number in range(BURST)))
        there = time.perf_counter()
        await asyncio.gather(*(remove(sandbox_id) for sandbox_id in made))
        gone = time.perf_counter()
    return {"floor_burst_pods_per_second": BURST / (there - began), "floor_burst_gone": gone - there}


def configurations(number: int, image: str, logs: str) -> tuple[api.PodSandboxConfig, api.ContainerConfig]:
    uid = str(uuid.uuid4())
    sandbox = api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name=f"floor-{number}", uid=uid, namespace="bench"),
        hostname=f"floor-{number}",
        log_directory=logs,
        linux=api.LinuxPodSandboxConfig(cgroup_parent=f"/wherry-floor/{uid}"),
    )
    container = api.ContainerConfig(
        metadata=api.ContainerMetadata(name="main"),
        image=api.ImageSpec(image=image),
        command=["sleep", "1000"],
        log_path=f"{number}.log",
    )
    return sandbox, container


async def one(client: Client, number: int, image: str, logs: str, times: dict[str, list[float]]) -> None:
    sandbox, container = configurations(number, image, logs)
    began = time.perf_counter()
    sandbox_id = await client.runtime.run_pod_sandbox(sandbox)
    made = time.perf_counter()
    container_id = await client.runtime.create_container(sandbox_id, container, sandbox)
    created = time.perf_counter()
    await client.runtime.start_container(container_id)
    times["start"].append(time.perf_counter() - created)
    times["create"].append(created - made)
    times["sandbox"].append(made - began)
    await client.runtime.stop_pod_sandbox(sandbox_id)
    await client.runtime.remove_pod_sandbox(sandbox_id)


if __name__ == "__main__":
    asyncio.run(main())
