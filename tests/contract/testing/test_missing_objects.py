"""Pods of a cluster for tests that name ConfigMaps, Secrets and claims: they wait while one is missing, as with a kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from wherry.testing import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(time="virtual") as found:
        yield found


def pod(name: str, spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "nginx", **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [main], **(spec or {})},
    }


def of_volume(name: str, spec: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    volumes = {"volumes": [{"name": "v", **source}], **(spec or {})}
    return pod(name, volumes, volumeMounts=[{"name": "v", "mountPath": "/v"}])


def named(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def events(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    found = [each for each in cluster.list("events") if each["involvedObject"].get("name") == name]
    return [(each["reason"], each["message"]) for each in found if each["type"] == "Warning"]


def test_pods_start_when_the_config_map_or_secret_that_they_name_appears(cluster: Cluster) -> None:
    cluster.apply(
        [
            of_volume("mount", secret={"secretName": "s"}),
            pod("env", envFrom=[{"configMapRef": {"name": "c"}}]),
            of_volume("optional", secret={"secretName": "s", "optional": True}),
        ]
    )
    cluster.wait("pod/optional", "Ready")
    waiting = "status.containerStatuses.0.state.waiting.reason="
    cluster.wait("pod/mount", waiting + "ContainerCreating")
    found = cluster.wait("pod/env", waiting + "CreateContainerConfigError")
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == 'configmap "c" not found'
    cluster.advance(minutes=10)
    message = 'MountVolume.SetUp failed for volume "v" : secret "s" not found'
    assert events(cluster, "mount") == [("FailedMount", message)]
    assert events(cluster, "env") == [("Failed", 'Error: configmap "c" not found')]
    before = cluster.now
    cluster.apply([named("Secret", "s", stringData={"a": "b"}), named("ConfigMap", "c", data={"A": "b"})])
    cluster.wait("pod/mount", "Ready")
    cluster.wait("pod/env", "Ready")
    assert cluster.now == before
    cluster.delete("configmap/c")
    cluster.pods.kill("env")
    cluster.wait("pod/env", waiting + "CreateContainerConfigError")
    cluster.apply(named("ConfigMap", "c", data={"A": "b"}))
    cluster.wait("pod/env", "Ready")


def test_a_pod_of_a_node_waits_until_its_claim_exists_and_is_bound(cluster: Cluster) -> None:
    source = {"persistentVolumeClaim": {"claimName": "data"}}
    cluster.apply(of_volume("a", {"nodeName": "node-1"}, **source))  # the scheduler does not wait for the claim
    cluster.wait("pod/a", "PodScheduled")
    cluster.advance(seconds=1)
    message = 'MountVolume.SetUp failed for volume "v" : error processing PVC default/data: '
    assert [(reason, text.startswith(message)) for reason, text in events(cluster, "a")] == [("FailedMount", True)]
    size = {"storage": "1Gi"}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": size}}
    cluster.apply(named("PersistentVolumeClaim", "data", spec=claim))
    cluster.advance(minutes=5)
    assert ("FailedMount", 'MountVolume.SetUp failed for volume "v" : PVC "default/data" is not bound') in events(
        cluster, "a"
    )
    volume = {"capacity": size, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    cluster.apply(named("PersistentVolume", "data", spec=volume))
    cluster.wait("pod/a", "Ready")


def test_a_pod_without_its_claim_is_not_scheduled(cluster: Cluster) -> None:
    cluster.apply(of_volume("b", persistentVolumeClaim={"claimName": "none"}))
    found = cluster.wait("pod/b", "PodScheduled=False")
    assert 'persistentvolumeclaim "none" not found' in found["status"]["conditions"][0]["message"]
