"""Processors for one container alone, on a real kernel: its cpuset, and that of everything else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.managers import cpuset
from agent.managers.options import ManagerOptions
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, agent_node, eventually

ALL = frozenset(os.sched_getaffinity(0))
QUOTA = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max"
LOOK = "cat /sys/fs/cgroup/cpuset/cpuset.cpus 2>/dev/null || cat /sys/fs/cgroup/cpuset.cpus.effective"


def container(**resources: dict[str, str]) -> dict[str, Any]:
    command = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
    return {"containers": [{"name": "main", "image": BUSYBOX_IMAGE, "command": command, "resources": resources}]}


async def processors(node: NodeUnderTest, name: str) -> frozenset[int]:
    return cpuset.parse(await node.execute(await node.get(name), "sh", "-c", LOOK))


@pytest.mark.skipif(len(ALL) < 2, reason="with one processor there is nothing to give away")
async def test_a_guaranteed_container_has_its_processor_for_itself(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest
) -> None:
    options = ManagerOptions(cpu_policy="static", topology_policy="single-numa-node")
    async with agent_node(tmp_path, containerd, server, managers=options, kube_reserved={"cpu": "500m"}) as node:
        await node.create("shared", container(requests={"cpu": "10m"}))
        await node.ready("shared")
        assert await processors(node, "shared") == ALL
        await node.create("alone", container(limits={"cpu": "1", "memory": "32Mi"}))
        await node.ready("alone")
        own = await processors(node, "alone")
        assert len(own) == 1
        assert (await node.execute(await node.get("alone"), "sh", "-c", QUOTA)).split()[0] in ("-1", "max")

        async def moved() -> bool:
            return await processors(node, "shared") == ALL - own

        await eventually(moved, "the shared container still runs on the exclusive processor")
        # One more that would need all that is left: one processor is reserved, so it fails with upstream's reason.
        await node.create("greedy", container(limits={"cpu": str(len(ALL) - 1), "memory": "32Mi"}))
        refused = await node.wait("greedy", lambda p: p.status.phase == "Failed")
        assert refused.status.reason in ("OutOfcpu", "UnexpectedAdmissionError")
        # A container that is made meanwhile is kept off it, too, and a restart of the agent changes nothing.
        await node.stop()
        await node.start()
        await node.create("late", container())
        await node.ready("late")
        assert await processors(node, "late") == ALL - own and await processors(node, "alone") == own
        await node.delete("alone")
        await node.gone("alone")

        async def free() -> bool:
            return await processors(node, "late") == ALL == await processors(node, "shared")

        await eventually(free, "the processor did not come back")
