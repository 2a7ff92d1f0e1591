"""Two agents under one node's name: each detects the other; a single one never does, whatever becomes of its responses."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.node.lease import NodeLease
from cri.fake import FakeRuntime
from cri.messages import ContainerState
from kube.api import core_v1
from kube.client import Client, Response, Transport
from kube.errors import StatusError
from tests.support.control import ApiUnderTest
from tests.support.fake_node import create
from tests.support.hollow import eventually, running
from tests.support.node import FastClock, NodeUnderTest, agent_node

OTHER = "another agent with this name renews its lease"


class LosesAnswers:
    """A transport whose every third write takes effect and fails for its sender."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self.stream, self.close, self.lost, self._count = inner, inner.stream, inner.close, 0, 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        answer = await self._inner.request(method, path, **options)
        if method != "GET":
            self._count += 1
            if self._count % 3 == 0:
                self.lost += 1
                raise StatusError(503, "ServiceUnavailable", "the answer was lost")
        return answer


def lease(client: Client, clock: FastClock) -> NodeLease:
    return NodeLease(client, "node-1", lambda: "", 40, clock=clock)


async def test_agents_that_share_a_node_name_log_it(
    api: ApiUnderTest, clock: FastClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(lease(api.client(), clock).run(), lease(api.client(), clock).run()):
        await eventually(lambda: OTHER in caplog.text)


async def test_an_agent_whose_answers_are_lost_takes_its_own_renewals_for_its_own(
    api: ApiUnderTest, clock: FastClock, caplog: pytest.LogCaptureFixture
) -> None:
    losing = LosesAnswers(api.client().transport)
    with caplog.at_level(logging.WARNING):
        async with running(lease(Client(losing), clock).run()):
            await eventually(lambda: losing.lost > 3)
    assert "renewing the node's lease: the answer was lost" in caplog.text
    assert OTHER not in caplog.text


async def running_once(node: NodeUnderTest, runtime: FakeRuntime, pods: dict[str, str]) -> None:
    """Check that these pods (name -> UID) are the API's, that each has one running container, and that none restarted."""
    found = (await node.client.list(core_v1.Pod, "default")).items
    assert {pod.metadata.name: pod.metadata.uid for pod in found} == pods
    assert not any(pod.metadata.deletion_timestamp for pod in found)
    assert [status.restart_count for pod in found for status in pod.status.container_statuses] == [0] * len(pods)
    running = Counter(
        container.status.labels["io.kubernetes.pod.uid"]
        for container in runtime.containers.containers.values()
        if container.status.state == ContainerState.CONTAINER_RUNNING
    )
    assert running == dict.fromkeys(pods.values(), 1)


@pytest.mark.parametrize("left", [0, 1], ids=["first", "second"])
async def test_two_agents_of_one_machine_start_no_pod_twice_and_delete_none_and_either_continues_alone(
    tmp_path: Path,
    runtime: FakeRuntime,
    api: ApiUnderTest,
    clock: FastClock,
    caplog: pytest.LogCaptureFixture,
    left: int,
) -> None:
    async with (
        agent_node(tmp_path / "a", runtime, api, clock=clock) as first,
        agent_node(tmp_path / "b", runtime, api, clock=clock) as second,
    ):
        pods: dict[str, str] = {}
        for number in range(6):
            made = await create(first, f"p{number}")
            pods[f"p{number}"] = made.metadata.uid or ""
        for name in pods:
            await first.ready(name)
        await eventually(lambda: OTHER in caplog.text)
        await running_once(first, runtime, pods)
        agents = [first, second]
        await agents[1 - left].stop()
        made = await create(first, "later")
        await first.ready("later")
        await running_once(first, runtime, {**pods, "later": made.metadata.uid or ""})
        for name in (*pods, "later"):
            await first.delete(name)
            await first.gone(name)
        await running_once(first, runtime, {})
