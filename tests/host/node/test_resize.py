"""In-place resize on a real kernel: the same container, another size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cgroups import qos
from agent.cgroups.tree import Cgroups
from kube import quantity
from kube.api import core_v1
from kube.client import STRATEGIC
from kube.errors import StatusError
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, eventually


def sized(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "256Mi"}}
    command = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
    return {"name": "main", "image": BUSYBOX_IMAGE, "command": command, "resources": resources, **more}


async def resize(node: NodeUnderTest, name: str, **resources: dict[str, str]) -> None:
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    await node.client.patch(core_v1.Pod, name, "default", body, type=STRATEGIC, subresource="resize")


def shown(pod: core_v1.Pod) -> tuple[Any, ...]:
    status = pod.status.container_statuses[0]
    assert status.resources
    return status.resources.requests["cpu"], status.resources.limits["cpu"], status.allocated_resources["cpu"]


def condition(pod: core_v1.Pod) -> tuple[str, str | None, str | None] | None:
    found = [c for c in pod.status.conditions if c.type.startswith("PodResize")]
    return (found[0].type, found[0].reason, found[0].message) if found else None


async def _share_is(node: NodeUnderTest, shares: int) -> bool:
    groups = Cgroups(node.config.cgroup_root, "cgroupfs")
    folder = f"{groups.kubepods()}/burstable"
    path = f"{folder}/cpu.weight" if groups.fs.v2 else f"cpu/{folder}/cpu.shares"
    return int(_read(path)) == (qos.cpu_weight(shares) if groups.fs.v2 else shares)


def _read(path: str) -> str:
    return (Path("/sys/fs/cgroup") / path).read_text()


async def test_a_running_container_gets_its_new_size_and_keeps_its_id(node: NodeUnderTest) -> None:
    await node.create("grows", {"containers": [sized("100m", "64Mi")]})
    before = await node.ready("grows")
    assert shown(before) == ("100m", "1", "100m")
    await resize(node, "grows", requests={"cpu": "500m"}, limits={"cpu": "750m", "memory": "300Mi"})
    after = await node.wait("grows", lambda p: shown(p) == ("500m", "750m", "500m") and condition(p) is None)
    assert after.status.container_statuses[0].container_id == before.status.container_statuses[0].container_id
    assert after.status.container_statuses[0].restart_count == 0
    text = await node.execute(
        after,
        "sh",
        "-c",
        "cd /sys/fs/cgroup; if [ -e cpu.max ]; then cat cpu.weight cpu.max memory.max; else "
        "cat cpu/cpu.shares cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes; fi",
    )
    assert text.split() in (["512", "75000", str(300 << 20)], ["20", "75000", "100000", str(300 << 20)])
    assert (await node.event("grows", "ResizeStarted")).startswith('Pod resize started: {"containers":[{"name":"main"')
    assert (await node.event("grows", "ResizeCompleted")).startswith("Pod resize completed: ")
    # The class of burstable pods gets as large a share as its pods request.
    await eventually(lambda: _share_is(node, 512), "the class has its old share still")
    # The next agent knows what was applied.
    await node.stop()
    await node.start()
    restarted = await node.get("grows")
    assert shown(restarted) == ("500m", "750m", "500m") and condition(restarted) is None


async def test_a_container_that_wants_a_restart_for_it_is_restarted(node: NodeUnderTest) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    await node.create("restarts", {"containers": [sized("100m", "64Mi", resizePolicy=policy)]})
    await node.ready("restarts")
    # cgroup v1 refuses a container more than its pod has: the pod grows before the container is recreated.
    await resize(node, "restarts", requests={"memory": "96Mi"}, limits={"cpu": "1500m", "memory": "300Mi"})
    pod = await node.wait(
        "restarts", lambda p: p.status.container_statuses[0].restart_count == 1 and shown(p)[1] == "1500m"
    )
    pod = await node.ready("restarts")
    assert pod.status.container_statuses[0].restart_count == 1

    async def is_reported() -> bool:
        return ("Killing", "Container main resize requires restart") in await node.events("restarts")

    await eventually(is_reported, "no event tells why it was restarted")
    assert pod.status.container_statuses[0].resources


async def test_a_size_that_the_node_cannot_hold_waits_and_reports_the_reason(node: NodeUnderTest) -> None:
    allocatable = (await node.client.get(core_v1.Node, node.config.node_name)).status.allocatable["cpu"]
    all_but_300 = f"{int(quantity.parse(allocatable) * 1000) - 300}m"
    beside, container = sized(all_but_300, "64Mi"), sized("100m", "64Mi")
    for each in (beside, container):
        each["resources"]["limits"] = {"memory": "256Mi"}
    await node.create("beside", {"containers": [beside]})
    await node.create("large", {"containers": [container]})
    for name in ("beside", "large"):
        await node.ready(name)
    with pytest.raises(StatusError, match="Node didn't have enough allocatable resources: cpu, requested: 900000,"):
        await resize(node, "large", requests={"cpu": "900"})
    await resize(node, "large", requests={"cpu": "400m"})
    pod = await node.wait("large", lambda p: (condition(p) or ("", ""))[1] == "Deferred")
    found = condition(pod)
    assert found and found[0] == "PodResizePending"
    assert (found[2] or "").startswith("Node didn't have enough resource: cpu, requested: 400, used: ")
    assert pod.status.container_statuses[0].allocated_resources["cpu"] == "100m"
    # What restarts meanwhile gets the size that the node has granted, and still waits for the other one.
    await node.execute(
        pod, "sh", "-c", "(sleep 0.2; kill 1) >/dev/null 2>&1 &"
    )  # what is run ends before the container
    again = await node.wait("large", lambda p: p.status.container_statuses[0].restart_count == 1)
    again = await node.ready("large")
    assert again.status.container_statuses[0].allocated_resources["cpu"] == "100m"
    assert (condition(again) or ("", ""))[1] == "Deferred"
    await resize(node, "large", requests={"cpu": "200m"})
    await node.wait(
        "large",
        lambda p: condition(p) is None and p.status.container_statuses[0].allocated_resources["cpu"] == "200m",
    )


async def test_a_limit_below_what_a_container_uses_is_put_off(node: NodeUnderTest) -> None:
    container = sized("100m", "16Mi")
    command = "trap 'exit 0' TERM; head -c 100000000 /dev/zero > /dev/shm/x; touch /tmp/full; sleep 1000 & wait"
    container["command"] = ["sh", "-c", command]
    container["readinessProbe"] = {"exec": {"command": ["test", "-e", "/tmp/full"]}, "periodSeconds": 1}
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    await node.create("full", {"containers": [container], "volumes": [shared]})
    before = await node.ready("full")
    await resize(node, "full", limits={"memory": "64Mi"})
    pod = await node.wait("full", lambda p: (condition(p) or ("", ""))[1] == "Error")
    found = condition(pod)
    assert found and found[0] == "PodResizeInProgress"
    text = "cannot decrease memory limits: [attempting to set pod memory limit (67108864) below current usage"
    assert (found[2] or "").startswith(text)
    assert 'attempting to set container "main" memory limit (67108864) below' in (found[2] or "")
    now = pod.status.container_statuses[0]
    assert (now.container_id, now.restart_count) == (before.status.container_statuses[0].container_id, 0)


def limits_of(node: NodeUnderTest, pod: core_v1.Pod) -> tuple[int, int]:
    """CPU quota and memory limit of the pod's own cgroup."""
    groups = Cgroups(node.config.cgroup_root, "cgroupfs")
    found = groups.fs.read(groups.pod_path(pod))
    return found.cpu_quota, found.memory


async def test_resources_of_the_whole_pod_change_its_cgroup_and_what_inherits_its_limits(node: NodeUnderTest) -> None:
    inherits, own = sized("100m", "16Mi"), sized("100m", "16Mi", name="own")
    inherits.pop("resources")
    own["resources"]["limits"] = {"cpu": "500m", "memory": "64Mi"}
    whole = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
    await node.create("whole", {"containers": [inherits, own], "resources": whole})
    before = await node.ready("whole")
    assert limits_of(node, before) == (100_000, 256 << 20)
    for cpu, memory in (("1500m", "512Mi"), ("600m", "128Mi")):
        wanted = {"requests": whole["requests"], "limits": {"cpu": cpu, "memory": memory}}
        await node.client.patch(
            core_v1.Pod, "whole", "default", {"spec": {"resources": wanted}}, type=STRATEGIC, subresource="resize"
        )
        after = await node.wait(
            "whole",
            lambda p, wanted=wanted: p.status.resources == core_v1.ResourceRequirements(**wanted) and not condition(p),
        )
        quota, size = quantity.milli(cpu) * 100, quantity.value(memory)
        assert limits_of(node, after) == (quota, size)
        script = (
            "cd /sys/fs/cgroup; if [ -e cpu.max ]; then cat cpu.max memory.max; else "
            "cat cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes; fi"
        )
        text = await node.execute(after, "sh", "-c", script)
        assert text.split() in ([str(quota), str(size)], [str(quota), "100000", str(size)])
        assert [s.restart_count for s in after.status.container_statuses] == [0, 0]
    assert after.status.allocated_resources == whole["requests"]
