"""The pytest plugin and unittest's test case, in pytest runs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
PLUGIN = ["-p", "no:wherry", "-p", "wherry.testing.plugin"]
"""The plugin by its module, and not by the entry point, which an environment has in which the package is installed."""
HEAD = """
import pytest
from wherry.testing import Cluster, Exit, Run

def deployment(name, replicas=1):
    labels = {"app": name}
    pod = {"containers": [{"name": "main", "image": "nginx"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
"""


def run(folder: Path, code: str, *arguments: str) -> tuple[int, str]:
    """Run tests with the plugin; return the status and the output."""
    (folder / "test_it.py").write_text(HEAD + code)
    (folder / "pytest.ini").write_text("[pytest]\nkubernetes_nodes = 2\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, "--strict-markers", *arguments]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_each_test_finds_the_cluster_as_the_first_one_did(tmp_path: Path) -> None:
    status, output = run(
        tmp_path,
        """
first = []

def left(kubernetes):
    found = {kind: sorted(o["metadata"]["name"] for o in kubernetes.list(kind, namespace=""))
             for kind in ("namespaces", "deployments", "replicasets", "pods", "services", "endpointslices", "nodes",
                          "customresourcedefinitions", "serviceaccounts", "configmaps", "clusterroles")}
    return found

def test_before(kubernetes):
    first.append(left(kubernetes))
    assert first[0]["nodes"] == ["node-1", "node-2"]

@pytest.mark.parametrize("number", range(5))
@pytest.mark.kubernetes(nodes=4, load=[deployment("loaded")])
def test_changes(kubernetes, namespace, number):
    assert kubernetes.get("deployment/loaded")
    assert kubernetes.nodes == ["node-1", "node-2", "node-3", "node-4"]
    kubernetes.pods.script("*", Run(ready=False))
    kubernetes.apply(deployment("web", 3), namespace=namespace)
    kubernetes.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                      "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}, namespace=namespace)
    kubernetes.patch("node/node-1", {"metadata": {"labels": {"changed": "yes"}}})
    kubernetes.delete("clusterrole/view")
    kubernetes.wait("deployment/web", "status.replicas=3", namespace=namespace)
    kubernetes.node("node-2").fail()

def test_after(kubernetes):
    assert left(kubernetes) == first[0]
    assert "changed" not in kubernetes.get("node/node-1")["metadata"]["labels"]
    kubernetes.apply(deployment("web", 3))
    kubernetes.wait("deployment/web", "Available")
    assert {p["spec"]["nodeName"] for p in kubernetes.list("pods")} == {"node-1", "node-2"}

async def test_async(async_kubernetes):
    await async_kubernetes.apply(deployment("web"))
    async_kubernetes.pods.script("other", Exit(1), optional=True)
    found = await async_kubernetes.wait("deployment/web", "Available")
    assert found["status"]["readyReplicas"] == 1

def test_client(kube_client, namespace):
    from kubernetes import client
    assert "default" in [n.metadata.name for n in client.CoreV1Api(kube_client).list_namespace().items]
""",
    )
    assert (status, "9 passed" in output) == (0, True), output


def test_the_report_of_a_failure_has_objects_and_events(tmp_path: Path) -> None:
    status, output = run(
        tmp_path,
        """
def test_fails(kubernetes, namespace):
    kubernetes.pods.script("web-*", Exit(3))
    kubernetes.apply(deployment("web"), namespace=namespace)
    kubernetes.wait("deployment/web", "Available", namespace=namespace, timeout=1)
""",
    )
    assert status == 1
    assert "deployment/web: not Available within 1 s; last seen: " in output
    report = output[output.index("kubernetes -") :]
    assert "deployments test/web: replicas=1" in report
    assert "container main: CrashLoopBackOff: back-off 10s restarting failed container=main" in report
    assert " Warning BackOff pod/web-" in report and " Normal Scheduled pod/web-" in report


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "@pytest.mark.kubernetes(node=4)\ndef test_it(kubernetes): pass",
            "wrong marker on test_it.py::test_it: write kubernetes(",
        ),
        ("@pytest.mark.kubernetes(nodes=True - 2)\ndef test_it(kubernetes): pass", "nodes=-1 is no number of nodes"),
        ('@pytest.mark.kubernetes(time="fast")\ndef test_it(kubernetes): pass', "'fast' is neither real nor virtual"),
        ("@pytest.mark.kubernetes(start=1)\ndef test_it(kubernetes): pass", "start=1 is no datetime with a time zone"),
        (
            "from datetime import UTC, datetime\n@pytest.mark.kubernetes(start=datetime(2026, 1, 1, tzinfo=UTC))\n"
            "def test_it(kubernetes): pass",
            'start is of virtual time: add time="virtual"',
        ),
        (
            '@pytest.mark.kubernetes(load="x.yaml")\ndef test_it(kubernetes): pass',
            "x.yaml: no such file or directory: check the path",
        ),
    ],
)
def test_a_wrong_marker_is_named_and_the_next_test_runs(tmp_path: Path, code: str, message: str) -> None:
    status, output = run(tmp_path, code + "\n\ndef test_next(kubernetes): pass\n")
    assert (status, message in output, "1 passed, 1 error" in output) == (1, True, True), output


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("kubernetes_nodes=many", "kubernetes_nodes = many: it is a number of nodes"),
        ("kubernetes_time=fast", "kubernetes_time = fast: it is real or virtual"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, setting: str, message: str) -> None:
    status, output = run(tmp_path, "def test_it(kubernetes): pass\n", "-o", setting)
    assert status != 0 and message in output


def test_virtual_time_by_marker_with_and_without_a_start(tmp_path: Path) -> None:
    status, output = run(
        tmp_path,
        """
from datetime import UTC, datetime, timedelta

pytestmark = pytest.mark.kubernetes(nodes=3, load=[deployment("all")])
START = datetime(2030, 1, 1, tzinfo=UTC)
ended = []

@pytest.mark.parametrize("number", range(3))
@pytest.mark.kubernetes(time="virtual", load=[deployment("one")])
def test_moves_time(kubernetes, number):
    assert len(kubernetes.nodes) == 3
    before = kubernetes.now
    assert not ended or before >= ended[-1]
    kubernetes.wait("deployment/all", "Available")
    kubernetes.wait("deployment/one", "Available")
    kubernetes.pods.script("late", Run(ready_after=86400))
    kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"},
                      "spec": {"nodeName": "node-3", "containers": [{"name": "c", "image": "i"}]}})
    kubernetes.wait("pod/late", "Ready", timeout=100_000)
    assert kubernetes.now - before >= timedelta(days=1)
    ended.append(kubernetes.now)

@pytest.mark.parametrize("number", range(2))
@pytest.mark.kubernetes(time="virtual", start=START)
def test_starts_then(kubernetes, number):
    assert kubernetes.now == START
    kubernetes.advance(days=1)
    assert kubernetes.now == START + timedelta(days=1)

def test_real(kubernetes):
    with pytest.raises(Exception, match="the time of this cluster is real"):
        kubernetes.advance(days=1)
""",
    )
    assert (status, "6 passed" in output) == (0, True), output


def test_the_settings_of_pytest_choose_virtual_time(tmp_path: Path) -> None:
    code = "def test_it(kubernetes): kubernetes.advance(days=1)\n"
    assert run(tmp_path, code, "-o", "kubernetes_time=virtual")[0] == 0


def test_a_test_case_of_unittest(tmp_path: Path) -> None:
    code = """
from wherry.testing import KubernetesTestCase

class TestIt(KubernetesTestCase):
    NODES = 2

    def test_one(self):
        self.assertEqual(self.cluster.list("deployments"), [])
        self.cluster.apply(deployment("web"))
        self.cluster.wait("deployment/web", "Available")

    test_two = test_one
"""
    (tmp_path / "test_case.py").write_text(HEAD + code)
    command = [sys.executable, "-m", "unittest", "test_case"]
    done = subprocess.run(command, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Ran 2 tests" in done.stderr, done.stderr
