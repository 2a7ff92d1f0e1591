"""The runtime learns that a container was killed for its memory only after the exit: the pod's status says so all the same."""

from __future__ import annotations

from typing import Any

import pytest

from cri.fake import FakeRuntime
from cri.runtime_service import RuntimeService
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest

LIMITED = {"limits": {"memory": "32Mi"}}


@pytest.mark.parametrize(
    ("container_resources", "pod_resources", "expected"),
    [(LIMITED, {}, "OOMKilled"), ({}, LIMITED, "OOMKilled"), ({}, {}, "Error")],
    ids=["container's limit", "pod's limit", "no limit"],
)
async def test_a_container_killed_for_memory_is_read_again_for_its_reason(
    node: NodeUnderTest,
    runtime: FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
    container_resources: dict[str, Any],
    pod_resources: dict[str, Any],
    expected: str,
) -> None:
    read_status = RuntimeService.container_status
    hungry = {**container("sleep 1000"), "resources": container_resources}
    await create(node, "hungry", hungry, restartPolicy="Never", resources=pod_resources)
    await node.wait("hungry", lambda pod: pod.status.phase == "Running")
    (made,) = runtime.containers.containers

    async def slow_to_learn(service: RuntimeService, container_id: str, **options: Any) -> Any:
        status = await read_status(service, container_id, **options)
        if status.exit_code == 137:
            runtime.containers.containers[made].status.reason = "OOMKilled"
        return status

    monkeypatch.setattr(RuntimeService, "container_status", slow_to_learn)
    await runtime.containers.crash(made, 137)
    pod = await node.wait("hungry", lambda pod: pod.status.phase == "Failed")
    ended = pod.status.container_statuses[0].state
    assert ended and ended.terminated and (ended.terminated.exit_code, ended.terminated.reason) == (137, expected)
