"""Pods come and go, many at a time and in every way; nothing of them stays on the machine."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, eventually
from tests.support.pod_churn import batch, traces

CHURN_SECONDS = 20.0
AT_ONCE = 50


def settled(cluster: Cluster) -> set[str]:
    """Wait until the namespaces of other tests are gone; return what there is on the machine then."""

    def quiet() -> bool:
        namespaces = cluster.get("namespaces")["items"]
        return all(ns["status"]["phase"] == "Active" for ns in namespaces)

    eventually(quiet, "other tests' namespaces are gone", 120)
    return traces(cluster)


def many() -> dict[str, Any]:
    """Return a Deployment of pods that ignore SIGTERM and are killed at the end of their grace period, a short one."""
    container = {"name": "c", "image": BUSYBOX, "command": ["sleep", "1000"]}
    labels = {"app": "many"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 2}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"}, "spec": spec}


def test_nothing_stays_of_pods_that_came_and_went(shared: Cluster, ns: str) -> None:
    before = settled(shared)
    shared.kubectl("create", "configmap", "words", "--from-literal=a=b", "-n", ns)
    shared.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(many()))
    shared.kubectl("expose", "deployment", "many", "--port=80", "-n", ns)
    end, number = time.monotonic() + CHURN_SECONDS, 0
    while time.monotonic() < end or number < 3:
        number += 1
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": batch(number)})
        shared.kubectl("apply", "-n", ns, "-f", "-", input=manifest)
        shared.kubectl("scale", "deployment", "many", f"--replicas={number % 2 * 8}", "-n", ns)
        # Some go while they start, some at once and by force.
        force = ["--force"] if number % 3 == 0 else []
        shared.kubectl("delete", "pods", "-l", "churn=yes", "-n", ns, "--wait=false", *force)
    shared.kubectl("delete", "namespace", ns, "--timeout=120s")

    def clean() -> bool:
        left = traces(shared) - before
        assert left == set()
        return True

    eventually(clean, "nothing is left", 90, every=1)
    assert "Traceback" not in shared.log("agent")


def test_many_kubectls_at_once_all_get_their_answers(shared: Cluster, ns: str) -> None:
    kinds = [
        lambda n: ["create", "configmap", f"c{n}", "--from-literal=a=b", "-n", ns],
        lambda n: ["get", "pods", "-A"],
        lambda n: ["get", "--raw", "/api/v1/nodes"],
        lambda n: ["describe", "node", "node1"],
        lambda n: ["run", f"p{n}", f"--image={BUSYBOX}", "--restart=Never", "-n", ns, "--", "true"],
    ]
    running: list[subprocess.Popen[str]] = []
    try:
        running += [shared.host.popen(*shared.kubectl_argv(*kinds[n % len(kinds)](n))) for n in range(AT_ONCE)]
        for process in running:
            message = process.communicate(timeout=200)[0]
            assert process.returncode == 0, message
    finally:
        for process in running:
            process.kill()
            process.wait()
    each = AT_ONCE // len(kinds)
    found = shared.get("configmaps", "-n", ns)["items"]
    assert sum(c["metadata"]["name"].startswith("c") for c in found) == each

    def all_ended() -> bool:
        pods = shared.get("pods", "-n", ns)["items"]
        return [p["status"]["phase"] for p in pods] == ["Succeeded"] * each

    eventually(all_ended, "every pod ends well", 120)
