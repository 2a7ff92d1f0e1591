"""The journal of the controllers: decisions that are no events, each once until it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from kube.journal import PATH, kind_key
from tests.support.broken_clusters import container, pod, workload
from wherry.testing import AsyncCluster

GROUPS = {"deployments": "apps", "statefulsets": "apps", "jobs": "batch"}


async def entries(cluster: AsyncCluster, plural: str, name: str, namespace: str = "default") -> list[str]:
    query = {"group": GROUPS.get(plural, ""), "version": "v1", "resource": plural, "name": name}
    async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport("kubernetes-admin")) as client:
        answer = await client.get(PATH, params=query | {"namespace": namespace})
    assert answer.status_code == 200, answer.text
    return [f"{entry['actor']}: {entry['text']}" for entry in answer.json()["entries"]]


def recorded(
    cluster: AsyncCluster, plural: str, name: str, *parts: str, namespace: str = "default"
) -> Callable[[Any], Any]:
    async def there(_: object) -> bool:
        found = await entries(cluster, plural, name, namespace)
        return any(all(part in text for part in parts) for text in found)

    return there


def broken(kind: str, **spec: Any) -> dict[str, Any]:
    found = workload(kind, spec=spec)
    lacking = container(envFrom=[{"configMapRef": {"name": "absent"}}])
    found["spec"]["template"]["spec"]["containers"] = [lacking]
    return found


async def test_a_deployment_records_why_its_rollout_waits_and_only_once() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply(workload("Deployment", spec={"replicas": 2}))
        await cluster.wait("deployment/web", "Available")
        await cluster.apply(broken("Deployment", replicas=2))
        waits = (
            "deployment-controller: waits for new pods to be available: 2 pods are, and 2 must be",
            "2 old pods stay",
        )
        await cluster.wait("deployment/web", recorded(cluster, "deployments", "web", *waits))
        before = [text for text in await entries(cluster, "deployments", "web") if waits[0] in text]
        await cluster.patch("deployment/web", {"metadata": {"labels": {"changed": "1"}}})
        await cluster.wait("deployment/web", lambda found: found["metadata"]["labels"].get("changed") == "1")
        after = [text for text in await entries(cluster, "deployments", "web") if waits[0] in text]
        assert len(before) == len(set(before)) and after == before


async def test_a_stateful_set_records_the_pod_that_it_waits_for() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply(broken("StatefulSet", serviceName="web", replicas=2))
        text = "statefulset-controller: waits for pod web-0, which is Pending, before the next pod is created"
        await cluster.wait("statefulset/web", recorded(cluster, "statefulsets", "web", text))


async def test_a_service_records_the_pods_that_it_leaves_out() -> None:
    async with AsyncCluster(1) as cluster:
        service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        lacking = pod("web", envFrom=[{"configMapRef": {"name": "absent"}}])
        await cluster.apply(
            [lacking, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service}]
        )
        text = "endpoint-slice-controller: leaves out pods that are not Ready: web"
        await cluster.wait("service/web", recorded(cluster, "services", "web", text))


async def test_the_garbage_collector_records_the_owner_that_is_gone() -> None:
    async with AsyncCluster(0) as cluster:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}, "data": {}}
        await cluster.apply(owner)
        uid = (await cluster.get("configmap/owner"))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
        metadata = {"name": "child", "ownerReferences": [reference]}
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})
        await cluster.delete("configmap/owner")
        journal = cluster.engine.api.journal
        assert journal is not None

        async def recorded(_: object) -> bool:  # the API does not show entries of an object that is gone
            found = journal.page([kind_key("", "ConfigMap")], "default", "child").entries
            return ("garbage-collector-controller", "deletes it, because no owner is left: configmap/owner") in {
                (entry.actor, entry.text) for entry in found
            }

        await cluster.wait("namespace/default", recorded)


async def test_a_namespace_records_what_its_deletion_waits_for() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        held = {"name": "held", "namespace": "shop", "finalizers": ["example.test/backup"]}
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held, "data": {}})
        await cluster.delete("namespace/shop")
        parts = "namespace-controller: deletion waits for ", " configmaps; finalizer example.test/backup of 1"
        await cluster.wait("namespace/shop", recorded(cluster, "namespaces", "shop", *parts, namespace=""))
