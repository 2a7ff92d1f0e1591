"""Pods whose labels, annotations and ports would make the runtime's lists larger than a message may be."""

from __future__ import annotations

from agent import runtime_records
from agent.runtime import Runtime
from cri.client import Client
from cri.fake import FakeRuntime
from cri.messages import PodSandboxConfig, PodSandboxMetadata
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest


async def test_a_pod_with_large_metadata_runs_and_the_runtime_gets_a_part(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    body = {
        "automountServiceAccountToken": False,
        "containers": [container(ports=[{"containerPort": n + 1} for n in range(500)])],
    }
    labels = {f"label-{n}": "v" * 60 for n in range(2000)}
    await node.create("large", body, labels=labels, annotations={"large": "v" * 200_000})
    await node.ready("large")
    (sandbox,), (made,) = calls(runtime, "RunPodSandbox"), calls(runtime, "CreateContainer")
    assert sandbox.config.ByteSize() < 80_000 and "label-0" in sandbox.config.labels
    assert sum(map(len, made.config.annotations.values())) < 8192
    assert "not passed to the container runtime" in await node.event("large", "PodMetadataTooLarge")
    await node.stop()
    await node.start()
    await node.delete("large", 0)
    await node.gone("large")


async def test_a_pod_of_usual_size_has_no_such_event(node: NodeUnderTest) -> None:
    await create(node, "small")
    await node.ready("small")
    assert "PodMetadataTooLarge" not in [reason for reason, _ in await node.events("small")]


async def test_pods_are_listed_one_by_one_where_all_are_too_large(runtime: FakeRuntime) -> None:
    async with Client(runtime.endpoint) as client:
        uids = [f"uid-{n}" for n in range(18)]
        for uid in uids:
            metadata = PodSandboxMetadata(name=uid, namespace="default", uid=uid)
            labels = {
                runtime_records.POD_UID: uid,
                runtime_records.POD_NAME: uid,
                runtime_records.POD_NAMESPACE: "default",
            }
            config = PodSandboxConfig(metadata=metadata, labels=labels, annotations={"large": "v" * (1 << 20)})
            await client.runtime.run_pod_sandbox(config, "")
        known = await Runtime(client, folders=lambda: uids).pods()
        assert set(known) == set(uids)
        before = {uid: pod.runtime for uid, pod in known.items()}
        assert {uid: pod.runtime for uid, pod in (await Runtime(client).pods(before)).items()} == before
