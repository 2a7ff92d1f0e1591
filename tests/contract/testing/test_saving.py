"""States of clusters for tests in files: another cluster continues with objects, keys, nodes, pods and scripts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.testing.test_cluster import deployment
from wherry.testing import Cluster, ClusterError, Exit, PullError, Run

START = datetime(2026, 1, 1, tzinfo=UTC)


def saved(tmp_path: Path, **options: Any) -> Path:
    """Save a cluster with pods in several states, and return the file."""
    path = tmp_path / "state.wherry"
    with Cluster(nodes=3, time="virtual", start=START, **options) as cluster:
        cluster.pods.script("web-*", [Exit(1), Run(logs="hello\n")])
        cluster.pods.script("crash", [Exit(2)])
        cluster.pods.script("pull", [PullError("no such tag")])
        cluster.pods.script("late", [Run(ready_after=600, seconds=900, exit_code=3), Run()])
        cluster.apply([deployment("web"), *(pod(name) for name in ("crash", "pull", "late"))])
        cluster.wait("deployment/web", "Available")
        cluster.advance(minutes=5)
        cluster.pods.set_ready("crash", ready=False)
        cluster.node("node-3").pressure("memory")
        cluster.save(path)
    return path


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "nginx"}], "nodeName": "node-1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def restarts(cluster: Cluster, name: str) -> int:
    return int(cluster.get(f"pod/{name}")["status"]["containerStatuses"][0]["restartCount"])


def test_a_cluster_continues_from_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600 and [each.name for each in tmp_path.iterdir()] == [path.name]
    with Cluster.load(path) as cluster:
        assert (cluster.now, cluster.nodes) == (START + timedelta(minutes=5), ["node-1", "node-2", "node-3"])
        pods = cluster.list("pods", selector="app=web")
        assert [each["status"]["phase"] for each in pods] == ["Running"] * 3
        assert restarts(cluster, "crash") == 5
        name = pods[0]["metadata"]["name"]
        assert (cluster.pods.logs(name), cluster.pods.logs(name, previous=True)) == ("hello\n", "")
        cluster.pods.kill(name)
        cluster.advance(seconds=20)  # the second restart is delayed by 10 s, as without the file
        assert restarts(cluster, name) == 2 and cluster.pods.logs(name) == "hello\n"
        assert restarts(cluster, "crash") == 6  # after 10, 30, 70, 150 and 310 s, and the next time after 610
        cluster.advance(minutes=4)
        assert restarts(cluster, "crash") == 6
        waiting = cluster.get("pod/pull")["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["message"].endswith("no such tag")
        assert cluster.get("node/node-3")["status"]["conditions"][1]["status"] == "True"
        cluster.wait("pod/late", "Ready")
        assert cluster.now == START + timedelta(minutes=10)
        cluster.advance(minutes=5)
        assert restarts(cluster, "late") == 1
        cluster.patch("deployment/web", {"spec": {"replicas": 4}}, subresource="scale")
        cluster.wait("deployment/web", "status.readyReplicas=4")
        addresses = {each["status"]["podIP"] for each in cluster.list("pods")}
        assert len(addresses) == len(cluster.list("pods")) == 7


def test_keys_stay_and_nodes_that_were_off_can_recover(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with Cluster(nodes=2, time="virtual", start=START) as cluster:
        cluster.apply(pod("a"))
        cluster.wait("pod/a", "Ready")
        authority = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        cluster.node("node-1").fail()
        cluster.wait("node/node-1", "Ready=Unknown")
        cluster.save(path)
    with Cluster.load(path) as cluster:
        found = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        assert found["certificate-authority-data"] == authority["certificate-authority-data"]
        cluster.advance(minutes=1)
        assert cluster.get("pod/a")["status"]["phase"] == "Running"
        cluster.node("node-1").recover()
        cluster.wait("node/node-1", "Ready")
        cluster.wait("pod/a", "Ready")
        assert restarts(cluster, "a") == 1
        cluster.add_node()
        assert cluster.nodes == ["node-1", "node-2", "node-3"]


def test_a_cluster_in_real_time_is_saved_and_loaded_in_virtual_time(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with Cluster() as cluster:
        cluster.apply(deployment("web", 2))
        cluster.wait("deployment/web", "Available")
        cluster.save(path)
    with Cluster.load(path, time="virtual") as cluster:
        cluster.advance(days=1)
        assert cluster.get("deployment/web")["status"]["readyReplicas"] == 2
    with Cluster.load(path) as cluster:
        assert cluster.get("deployment/web")["status"]["readyReplicas"] == 2
        cluster.delete("deployment/web")
        cluster.wait("deployment/web", "deleted")


def test_a_script_with_a_function_cannot_be_saved(tmp_path: Path) -> None:
    with Cluster(nodes=0) as cluster:
        cluster.pods.script("web-*", lambda start: Run(), optional=True)
        with pytest.raises(
            ClusterError, match=r"the script for 'web-\*' has a function, which cannot be saved in a file"
        ):
            cluster.save(tmp_path / "state")
        assert not list(tmp_path.iterdir())
