"""Limits of all pods on a real kernel: reservations, the reserved programs' cgroups, process IDs, huge pages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cgroups.node_allocatable import Enforcement
from agent.cgroups.tree import Cgroups
from agent.usage.machine import processes
from kube.api import core_v1
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import agent_node

PAGES = Path("/proc/sys/vm/nr_hugepages")
MIB = 1 << 20


def container(**resources: dict[str, str]) -> dict[str, Any]:
    command = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
    return {"name": "main", "image": BUSYBOX_IMAGE, "command": command, "resources": resources}


@contextlib.contextmanager
def huge_pages(count: int) -> Iterator[None]:
    before = PAGES.read_text()
    try:
        PAGES.write_text(str(count))
        if int(PAGES.read_text()) != count:
            pytest.skip("this machine has no huge pages to give")
        yield
    finally:
        PAGES.write_text(before)


async def test_reservations_bound_cgroups(tmp_path: Path, containerd: Containerd, server: ApiUnderTest) -> None:
    root = Cgroups(f"/{containerd.name}", "cgroupfs")
    mount = Path("/sys/fs/cgroup")
    folders = {name: mount / ("" if root.fs.v2 else name) / containerd.name for name in ("cpu", "memory", "pids")}
    memory_file = "memory.max" if root.fs.v2 else "memory.limit_in_bytes"
    for folder in folders.values():
        (folder / "agents").mkdir(parents=True, exist_ok=True)
    try:
        enforcement = Enforcement(frozenset({"pods", "kube-reserved"}), "/agents", "")
        reserved = {"memory": "512Mi", "pid": "1000"}
        async with agent_node(
            tmp_path, containerd, server, enforcement=enforcement, kube_reserved=reserved, pod_pids_limit=77
        ) as node:
            assert int((folders["memory"] / "agents" / memory_file).read_text()) == 512 * MIB
            assert int((folders["pids"] / "agents/pids.max").read_text()) == 1000
            status = (await node.client.get(core_v1.Node, node.config.node_name)).status
            capacity = int(str(status.capacity["memory"]).removesuffix("Ki")) * 1024
            together = int((folders["memory"] / "kubepods" / memory_file).read_text())
            # The kernel rounds to pages, the capacity to kibibytes.
            assert abs(together - (capacity - 512 * MIB)) < 8192
            assert int((folders["pids"] / "kubepods/pids.max").read_text()) == processes()[1] - 1000
            await node.create("few", {"containers": [container()]})
            pod = await node.ready("few")
            uid = pod.metadata.uid
            assert (folders["pids"] / f"kubepods/besteffort/pod{uid}/pids.max").read_text().strip() == "77"
    finally:
        root.fs.remove(containerd.name)


@pytest.mark.skipif(not os.access(PAGES, os.W_OK), reason="huge pages cannot be reserved here")
async def test_huge_pages_are_counted_and_mounted(tmp_path: Path, containerd: Containerd, server: ApiUnderTest) -> None:
    with huge_pages(8):
        async with agent_node(tmp_path, containerd, server, kube_reserved={"hugepages-2Mi": "4Mi"}) as node:
            status = (await node.client.get(core_v1.Node, node.config.node_name)).status
            assert (status.capacity["hugepages-2Mi"], status.allocatable["hugepages-2Mi"]) == ("16Mi", "12Mi")
            main = container(limits={"hugepages-2Mi": "4Mi", "memory": "32Mi", "cpu": "100m"})
            main["volumeMounts"] = [{"name": "huge", "mountPath": "/huge"}]
            volumes = [{"name": "huge", "emptyDir": {"medium": "HugePages"}}]
            await node.create("large", {"containers": [main], "volumes": volumes})
            pod = await node.ready("large")
            found = await node.execute(pod, "sh", "-c", "grep ' /huge ' /proc/mounts")
            assert found.split()[2] == "hugetlbfs" and "pagesize=2M" in found
            more = container(limits={"hugepages-2Mi": "10Mi", "memory": "32Mi", "cpu": "100m"})
            await node.create("greedy", {"containers": [more]})
            refused = await node.wait("greedy", lambda p: p.status.phase == "Failed")
            assert refused.status.reason == "OutOfhugepages-2Mi"
