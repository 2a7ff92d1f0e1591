"""Controllers and objects of other namespaces that name theirs as owners: an author may write any owner's UID."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.api import apps_v1, batch_v1, core_v1, meta_v1
from tests.support.hollow import eventually
from tests.support.hollow_cluster import Cluster, deployment, hollow_cluster, running_pods

FIRST_TO_GO = "controller.kubernetes.io/pod-deletion-cost"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with hollow_cluster(tmp_path) as made:
        await made.nodes.register("n1")
        evil = core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="evil"))
        await made.client.create(evil)
        await eventually(lambda: made.client.get(core_v1.ServiceAccount, "default", "evil"))
        yield made


def stateful_set(replicas: int) -> apps_v1.StatefulSet:
    made = deployment(replicas=replicas)
    spec = apps_v1.StatefulSetSpec(
        replicas=replicas, selector=made.spec.selector, template=made.spec.template, service_name="web"
    )
    return apps_v1.StatefulSet(metadata=made.metadata, spec=spec)


def replica_set(replicas: int) -> apps_v1.ReplicaSet:
    made = deployment(replicas=replicas)
    spec = apps_v1.ReplicaSetSpec(replicas=replicas, selector=made.spec.selector, template=made.spec.template)
    return apps_v1.ReplicaSet(metadata=made.metadata, spec=spec)


def job(replicas: int) -> batch_v1.Job:
    template = deployment().spec.template
    template.spec.restart_policy = "Never"
    made = deployment()
    return batch_v1.Job(
        metadata=made.metadata, spec=batch_v1.JobSpec(parallelism=replicas, completions=10, template=template)
    )


def foreign(number: int, owner: Any, labels: dict[str, str]) -> core_v1.Pod:
    """Return a pod of another namespace that names the owner under a group that nobody knows: it is not collected."""
    kind = type(owner).__name__
    reference = meta_v1.OwnerReference(
        api_version="nobody.example/v1",
        kind=kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )
    metadata = meta_v1.ObjectMeta(
        name=f"web-{number}",
        namespace="evil",
        labels=labels,
        annotations={FIRST_TO_GO: "2147483647"},
        owner_references=[reference],
    )
    container = core_v1.Container(name="c", image="nginx")
    return core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[container]))


@pytest.mark.parametrize("make", [replica_set, stateful_set, job])
async def test_pods_of_another_namespace_are_no_children(cluster: Cluster, make: Any) -> None:
    owner = await cluster.client.create(make(2))
    await eventually(lambda: running_pods(cluster, 2))
    before = {pod.metadata.uid for pod in await cluster.pods()}
    labels = (await cluster.pods())[0].metadata.labels
    for number in range(3):
        await cluster.client.create(foreign(number, owner, labels))

    async def foreign_run() -> bool:
        found = (await cluster.client.list(core_v1.Pod, "evil")).items
        return [pod.status.phase for pod in found] == ["Running"] * 3

    await eventually(foreign_run)
    count = {"parallelism": 4} if make is job else {"replicas": 4}
    await cluster.client.patch(type(owner), "web", "default", {"spec": count})
    await eventually(lambda: running_pods(cluster, 4))
    pods = await cluster.pods()
    assert before < {pod.metadata.uid for pod in pods} and not any(pod.metadata.deletion_timestamp for pod in pods)
    count = {"parallelism": 3} if make is job else {"replicas": 3}
    await cluster.client.patch(type(owner), "web", "default", {"spec": count})
    await eventually(lambda: running_pods(cluster, 3))
    assert await foreign_run(), "the controller has deleted one of its own pods, and none of these"
