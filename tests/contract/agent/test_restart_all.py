"""One container's end restarts all of a pod's, in the sandbox that it has."""

from __future__ import annotations

import asyncio

from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.informer import Informer
from tests.support.fake_node import TRAP, calls, container, create
from tests.support.node import NodeUnderTest, eventually

RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]


def restarting(pod: core_v1.Pod) -> str:
    return next((c.status for c in pod.status.conditions if c.type == "AllContainersRestarting"), "")


def counts(pod: core_v1.Pod) -> dict[str, int]:
    every = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {status.name: status.restart_count for status in every}


async def test_all_containers_start_anew_and_nothing_else_does(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    seen: list[core_v1.Pod] = []
    pods: Informer[core_v1.Pod] = Informer(node.client, core_v1.Pod, "default")
    pods.subscribe(lambda change: seen.append(change.new))
    task = asyncio.create_task(pods.run())
    await pods.wait_synced()
    try:
        trigger = container("sleep 200; exit 42", restartPolicy="Never", restartPolicyRules=RULES)
        init = [container("exit 0", "setup"), container(TRAP, "side", restartPolicy="Always")]
        await create(node, "anew", trigger, container(name="other"), initContainers=init, restartPolicy="Never")
        await node.ready("anew")
        everything = {"setup": 1, "side": 1, "main": 1, "other": 1}
        pod = await node.wait(
            "anew",
            lambda p: counts(p) == everything and p.status.container_statuses[0].ready and restarting(p) == "False",
        )

        async def caught_up() -> bool:
            return pod.metadata.resource_version in [version.metadata.resource_version for version in seen]

        await eventually(caught_up, "the watch has not come to the pod's last version")
    finally:
        task.cancel()
    assert len(calls(runtime, "RunPodSandbox")) == 1 and pod.status.phase == "Running"
    assert [request.timeout for request in calls(runtime, "StopContainer")] == [0, 0]
    order = [request.config.metadata.name for request in calls(runtime, "CreateContainer")]
    assert order == ["setup", "side", "main", "other"] * 2
    phases = [version.status.phase or "" for version in seen]
    assert phases == sorted(phases, key=["Pending", "Running"].index), "the phase goes one way"
    flags = [flag for version in seen if (flag := restarting(version))]
    assert "True" in flags and flags[0] == flags[-1] == "False"
    ended = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    last = {status.name: status.last_state.terminated for status in ended if status.last_state is not None}
    codes = {name: end.exit_code for name, end in last.items() if end is not None}
    assert codes.keys() == everything.keys() and codes["setup"] == 0 and codes["main"] == 42, (
        "the runtime has none of them any more"
    )
    await node.stop()
    await node.start()
    await node.wait("anew", lambda p: counts(p) == {name: 2 for name in everything})
    await node.delete("anew")
    await node.gone("anew")
