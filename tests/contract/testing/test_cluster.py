"""A cluster for tests in this process: real API server, controllers and scheduler, simulated nodes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wherry.testing import AsyncCluster, Cluster, ClusterError, Exit, Run, Start, WaitError


def deployment(name: str, replicas: int = 3) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}},
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as found:
        yield found


def test_a_deployment_becomes_available_on_all_nodes_and_its_pods_go_with_it(cluster: Cluster) -> None:
    cluster.pods.script("web-*", [Exit(1), Run(logs="hello\n")])
    cluster.apply(deployment("web"))
    found = cluster.wait("deployment/web", "Available")
    assert found["status"]["readyReplicas"] == 3
    pods = cluster.list("pods", selector="app=web")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2", "node-3"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods} == {1}
    name = pods[0]["metadata"]["name"]
    assert (cluster.pods.logs(name), cluster.pods.logs(name, previous=True)) == ("hello\n", "")
    cluster.delete("deploy/web")
    for pod in pods:
        cluster.wait(f"pod/{pod['metadata']['name']}", "deleted")


def test_a_job_completes_and_one_whose_pods_fail_is_failed(cluster: Cluster) -> None:
    def job(name: str) -> dict[str, Any]:
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}
        spec = {"completions": 3, "parallelism": 3, "backoffLimit": 0, "template": {"spec": pod}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}

    cluster.pods.script("bad-*", Exit(2))
    cluster.apply([job("good"), job("bad")])
    assert cluster.wait("job/good", "Complete")["status"]["succeeded"] == 3
    assert cluster.wait("job/bad", "Failed")["status"]["failed"] >= 1


def test_a_service_has_the_ready_pods_as_endpoints(cluster: Cluster) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "api"},
        "spec": {"selector": {"app": "api"}, "ports": [{"port": 80}]},
    }
    cluster.apply([service, deployment("api", 2)])
    cluster.wait("deployment/api", "Available")

    def ready() -> int:
        slices = cluster.list("endpointslices", selector="kubernetes.io/service-name=api")
        return sum(each["conditions"]["ready"] for one in slices for each in one["endpoints"] or ())

    slice = cluster.list("endpointslices", selector="kubernetes.io/service-name=api")[0]["metadata"]["name"]
    cluster.wait(f"endpointslice/{slice}", lambda _: ready() == 2)
    pod = cluster.list("pods", selector="app=api")[0]["metadata"]["name"]
    cluster.pods.set_ready(pod, ready=False)
    cluster.wait(f"endpointslice/{slice}", lambda _: ready() == 1)


def test_objects_of_a_definition_are_applied_right_after_it(cluster: Cluster) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "shortNames": ["sh"]},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    ship = {"apiVersion": "example.org/v1", "kind": "Ship", "metadata": {"name": "argo"}, "spec": {"oars": 50}}
    cluster.apply([definition, ship])
    assert cluster.get("sh/argo")["spec"] == {"oars": 50}
    assert cluster.patch("ship/argo", {"spec": {"oars": 52}})["spec"] == {"oars": 52}


def test_kubectl_works_with_the_kubeconfig(cluster: Cluster) -> None:
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "get", "nodes", "--no-headers"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.split()[:2] for line in answer.splitlines()][:3] == [[f"node-{n}", "Ready"] for n in (1, 2, 3)]


def test_the_metrics_of_the_server_are_served(cluster: Cluster) -> None:
    metrics = cluster.run(cluster.running.client.call("GET", "/metrics")).decode()
    assert "apiserver_request_total{" in metrics and "sqlite" not in metrics


def test_pressure_taints_a_node_and_its_end_removes_the_taint(cluster: Cluster) -> None:
    node = cluster.add_node("small", labels={"size": "small"}, capacity={"memory": "1Gi"})
    node.pressure("memory")
    cluster.wait("node/small", lambda obj: "memory-pressure" in str(obj["spec"].get("taints")))
    node.pressure("memory", on=False)
    cluster.wait("node/small", lambda obj: "memory-pressure" not in str(obj["spec"].get("taints")))
    assert cluster.get("node/small")["metadata"]["labels"]["size"] == "small"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: c.apply({**deployment("x"), "spec": {"replica": 1}}), ".spec.replica: field not declared in schema"),
        (lambda c: c.apply({"apiVersion": "v9", "kind": "Ship", "metadata": {"name": "a"}}), "no kind Ship in v9"),
        (lambda c: c.get("pod/none"), 'pods "none" not found'),
        (lambda c: c.get("web"), "'web' names no object: write resource/name"),
        (lambda c: c.list("ponies"), "no resource 'ponies'"),
        (lambda c: c.node("node-9"), "no node 'node-9'; there are node-1"),
        (lambda c: c.pods.kill("none"), "no node runs a pod default/none"),
        (lambda c: c.node("node-1").pressure("love"), "no pressure 'love'; there are memory, disk, pid"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(cluster: Cluster, wrong: Any, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        wrong(cluster)
    assert message in str(error.value)


def test_a_script_that_uses_the_cluster_is_refused_and_does_no_harm(cluster: Cluster) -> None:
    errors: list[str] = []

    def step(start: Start) -> Run:
        with pytest.raises(ClusterError) as error:
            cluster.get("pod/greedy")
        errors.append(str(error.value))
        return Run()

    cluster.pods.script("greedy", step)
    pod = {"containers": [{"name": "main", "image": "x"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy"}, "spec": pod})
    cluster.wait("pod/greedy", "Ready")
    assert errors == ["a container's script cannot use the cluster, which waits for it"]


def test_a_wait_that_fails_says_what_it_saw_last(cluster: Cluster) -> None:
    with pytest.raises(WaitError, match=r"node/node-1: not Ready=False within 0 s; last seen: .*Ready=True"):
        cluster.wait("node/node-1", "Ready=False", timeout=0)


def test_nothing_is_left_when_the_block_ends() -> None:
    threads = set(threading.enumerate())
    with Cluster(nodes=1) as cluster:
        folder = cluster.kubeconfig.parent
        assert folder.is_dir()
    assert not folder.exists()
    left = [each for each in set(threading.enumerate()) - threads if each.name.startswith("wherry")]
    assert not left
    with pytest.raises(ClusterError, match="the cluster does not run"):
        cluster.get("node/node-1")
    with pytest.raises(ClusterError, match="started already"), cluster:
        pass


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_an_interrupted_cluster_leaves_nothing_and_warns_of_nothing(tmp_path: Path, seconds: float) -> None:
    code = f"""
import os, signal, threading, time
from wherry.testing import Cluster
threading.Timer(0.7 + {seconds}, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    with Cluster(nodes=3) as cluster:
        time.sleep(30)
except KeyboardInterrupt:
    print("left:", [t.name for t in threading.enumerate() if t.name.startswith(("wherry", "asyncio"))])
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left: []\n", "")
    assert not list(tmp_path.iterdir())


async def test_the_same_with_asyncio(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: x}]}\n")
    async with AsyncCluster() as cluster:
        await cluster.apply(manifest)
        ready, pods = await asyncio.gather(cluster.wait("pod/a", "Ready"), cluster.list("po"))
        assert ready["status"]["phase"] == "Running" and [pod["metadata"]["name"] for pod in pods] == ["a"]
