"""Pods whose authors write the annotations by which upstream marks static pods: they stay pods of the API."""

from __future__ import annotations

import asyncio
import os

import pytest

from cri.fake import FakeRuntime
from kube.api import core_v1
from tests.support.fake_node import calls, container
from tests.support.node import NodeUnderTest

FORGED = {
    "kubernetes.io/config.source": "file",
    "kubernetes.io/config.hash": "../../../stolen",
    "kubernetes.io/config.seen": "2020-01-01T00:00:00Z",
}
MOST = f"{max(1, (os.cpu_count() or 1)) * 1000 - 100}m"


async def forge(node: NodeUnderTest, name: str, **more: object) -> core_v1.Pod:
    body = {"automountServiceAccountToken": False, "containers": [container(**more)]}
    return await node.create(name, body, annotations=FORGED)


async def test_its_status_is_reported_and_its_deletion_ends_it(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await forge(node, "forged")
    pod = await node.ready("forged")
    assert pod.status.phase == "Running"
    await node.delete("forged", grace=1)
    await node.gone("forged")
    assert len(calls(runtime, "StopPodSandbox")) == 1


async def test_it_preempts_nobody(node: NodeUnderTest) -> None:
    resources = {"resources": {"requests": {"cpu": MOST}}}
    await node.create("ordinary", {"automountServiceAccountToken": False, "containers": [container(**resources)]})
    await node.ready("ordinary")
    await forge(node, "forged", resources={"requests": {"cpu": "500m"}})
    refused = await node.wait("forged", lambda pod: pod.status.phase == "Failed")
    assert refused.status.reason == "OutOfcpu"
    assert (await node.get("ordinary")).status.phase == "Running"


async def test_what_claims_to_mirror_a_pod_that_is_not_there_is_deleted(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    body = {"automountServiceAccountToken": False, "containers": [container()]}
    await node.create("mirror", body, annotations={**FORGED, "kubernetes.io/config.mirror": "1"})
    await node.gone("mirror")
    assert not calls(runtime, "RunPodSandbox")


@pytest.mark.parametrize("restarts", [1, 2])
async def test_it_is_the_same_after_the_agent_restarted(
    node: NodeUnderTest, runtime: FakeRuntime, restarts: int
) -> None:
    await forge(node, "forged")
    await node.ready("forged")
    for _ in range(restarts):
        await node.stop()
        await node.start()
    await asyncio.sleep(0.2)
    await node.delete("forged", grace=1)
    await node.gone("forged")
    assert len(calls(runtime, "RunPodSandbox")) == 1
