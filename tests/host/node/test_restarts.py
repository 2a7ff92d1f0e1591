"""Restarts of the agent and of containerd, and lost sandboxes: running containers keep running."""

from __future__ import annotations

import asyncio

from cri.client import Client as RuntimeClient
from cri.messages import PodSandboxState
from kube.api import core_v1
from tests.support.containerd import Containerd
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, eventually, is_ready

SLEEP = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]}


def identity(pod: core_v1.Pod) -> list[tuple[str | None, int]]:
    return [(s.container_id, s.restart_count) for s in pod.status.container_statuses]


async def test_a_restarted_agent_finds_its_containers_again(node: NodeUnderTest) -> None:
    await node.create("stays", {"containers": [SLEEP]})
    before = await node.ready("stays")
    await node.stop()
    await node.start()
    await asyncio.sleep(1.0)  # time for a wrong restart to happen
    after = await node.get("stays")
    assert identity(after) == identity(before)
    assert after.status.conditions == before.status.conditions
    assert after.status.pod_ip == before.status.pod_ip


async def test_a_pod_deleted_while_the_agent_was_away_is_ended_after(node: NodeUnderTest) -> None:
    await node.create("leaves", {"containers": [SLEEP]})
    pod = await node.ready("leaves")
    await node.stop()
    await node.delete("leaves", grace=0)
    await node.start()
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:

        async def nothing_left() -> bool:
            labels = {"io.kubernetes.pod.uid": pod.metadata.uid or ""}
            return not await runtime.runtime.list_pod_sandboxes(labels=labels)

        await eventually(nothing_left, "the orphan's sandbox is still there")

    async def no_folder() -> bool:
        return not (node.config.pods_dir / (pod.metadata.uid or "")).exists()

    await eventually(no_folder, "the orphan's folder is still there")


async def test_a_crash_while_the_agent_was_away_is_seen_and_repaired(node: NodeUnderTest) -> None:
    await node.create("crashes", {"containers": [SLEEP]})
    before = await node.ready("crashes")
    await node.stop()
    container_id = identity(before)[0][0] or ""
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:
        await runtime.runtime.stop_container(container_id.partition("://")[2], 0)
    await node.start()
    after = await node.wait("crashes", lambda p: p.status.container_statuses[0].restart_count == 1 and is_ready(p))
    last = after.status.container_statuses[0].last_state
    assert last and last.terminated and last.terminated.container_id == container_id


async def test_a_container_that_dies_is_started_again_at_once(node: NodeUnderTest) -> None:
    await node.create("dies", {"containers": [SLEEP]})
    pod = await node.ready("dies")
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:
        await runtime.runtime.exec_sync((identity(pod)[0][0] or "").partition("://")[2], ["kill", "-9", "-1"])
        pod = await node.wait("dies", lambda p: p.status.container_statuses[0].restart_count == 1)


async def test_a_lost_sandbox_is_made_anew_with_its_containers(node: NodeUnderTest) -> None:
    await node.create("sandbox", {"containers": [SLEEP]})
    pod = await node.ready("sandbox")
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:
        labels = {"io.kubernetes.pod.uid": pod.metadata.uid or ""}
        [sandbox] = await runtime.runtime.list_pod_sandboxes(labels=labels)
        await runtime.runtime.stop_pod_sandbox(sandbox.id)

        async def another_one() -> bool:
            ready = await runtime.runtime.list_pod_sandboxes(labels=labels, state=PodSandboxState.SANDBOX_READY)
            return bool(ready) and all(each.id != sandbox.id for each in ready)

        await eventually(another_one, "there is no other sandbox")
    after = await node.wait("sandbox", lambda p: identity(p)[0][0] != identity(pod)[0][0] and is_ready(p))
    # The runtime ends the container before the sandbox: between the two it may be restarted once in vain, as upstream.
    assert identity(after)[0][1] in (1, 2)
    assert await node.event("sandbox", "SandboxChanged") == "Pod sandbox changed, it will be killed and re-created."


async def test_a_restarted_containerd_costs_no_container(node: NodeUnderTest, containerd: Containerd) -> None:
    await node.create("endures", {"containers": [SLEEP]})
    before = await node.ready("endures")
    await asyncio.to_thread(containerd.restart)
    await node.create("later", {"containers": [SLEEP]})
    await node.ready("later")
    assert identity(await node.get("endures")) == identity(before)
    await node.delete("endures")
    await node.gone("endures")


async def test_a_pod_that_ended_leaves_nothing_when_it_is_deleted(node: NodeUnderTest) -> None:
    done = {**SLEEP, "command": ["true"]}
    await node.create("done", {"restartPolicy": "Never", "containers": [done]})
    pod = await node.wait("done", lambda p: p.status.phase == "Succeeded")
    labels = {"io.kubernetes.pod.uid": pod.metadata.uid or ""}
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:
        assert await runtime.runtime.list_containers(labels=labels), "its log must stay readable"
        await node.delete("done")
        await node.gone("done")

        async def nothing_left() -> bool:
            logs = list(node.config.pod_logs_dir.glob(f"*_{pod.metadata.uid}"))
            links = list(node.config.container_logs_dir.iterdir())
            return not logs and not links and not await runtime.runtime.list_pod_sandboxes(labels=labels)

        await eventually(nothing_left, "the sandbox, the log or its link is still there")
