"""Pods come and go, many at a time and in every way; nothing of them stays on the machine."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, eventually

CHURN_SECONDS = 20.0
AT_ONCE = 50
_BOOKKEEPING = {"lock", "last_reserved_ip.0"}


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "words", "mountPath": "/words"}]
    container = {"name": "c", "image": BUSYBOX, "command": ["sh", "-c", script], "volumeMounts": mounts}
    volumes = [{"name": "scratch", "emptyDir": {"medium": "Memory"}}, {"name": "words", "configMap": {"name": "words"}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"churn": "yes"}},
        "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1, **spec},
    }


def batch(number: int) -> list[dict[str, Any]]:
    """Pods that run, end, fail, cannot start, wait in their init container, or have no network of their own."""
    crash = [{"name": "i", "image": BUSYBOX, "command": ["false"]}]
    return [
        pod(f"runs-{number}", "sleep 1000"),
        pod(f"ends-{number}", "true", restartPolicy="Never"),
        pod(f"crashes-{number}", "exit 1"),
        pod(f"stuck-{number}", "true", initContainers=crash),
        pod(f"host-{number}", "sleep 1000", hostNetwork=True),
        {**pod(f"nowhere-{number}", "true"), "spec": {"containers": [{"name": "c", "image": "127.0.0.1:9/none:1"}]}},
    ]


def traces(cluster: Cluster) -> set[str]:
    """List what pods leave on a machine while they live: mounts, cgroups, links, addresses, folders, logs, processes.

    The bridge and the cgroups above those of the pods come with the first pod, and stay.
    """
    prefix = str(cluster.prefix)
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    found = {f"mount {point}" for point in mounted if point.startswith(prefix)}
    for root in Path("/sys/fs/cgroup").glob(f"*/wherry-tmp-{cluster.prefix.name}"):
        found |= {f"cgroup {path}" for path in root.rglob("kubepods/**/pod*/") if path.is_dir()}
    links = cluster.host.run("ip", "-brief", "link").stdout.splitlines()
    found |= {f"link {line.split()[0].partition('@')[0]}" for line in links if not line.startswith("cni0")}
    for folder in ("lib/kubelet/pods", "log/pods", "log/containers", "lib/cni/networks/wherry"):
        found |= {f"file {p}" for p in (cluster.prefix / "var" / folder).glob("*") if p.name not in _BOOKKEEPING}
    found |= {f"container {name}" for name in cluster.ctr("containers", "ls", "-q").split()}
    found |= {f"task {name}" for name in cluster.ctr("tasks", "ls", "-q").split()}
    snapshots = [line.split() for line in cluster.ctr("snapshots", "ls").splitlines()]
    found |= {f"snapshot {line[0]}" for line in snapshots if line and line[-1] == "Active"}
    rules = cluster.host.run("iptables-save", "-t", "nat").stdout
    found |= {f"chain {name}" for name in re.findall(r"^:(KUBE-\S+)", rules, re.MULTILINE)}
    return found


def settled(cluster: Cluster) -> set[str]:
    """Wait until the namespaces of other tests are gone; return what there is on the machine then."""

    def quiet() -> bool:
        namespaces = cluster.get("namespaces")["items"]
        return all(ns["status"]["phase"] == "Active" for ns in namespaces)

    eventually(quiet, "other tests' namespaces are gone", 60)
    return traces(cluster)


def test_nothing_stays_of_pods_that_came_and_went(shared: Cluster, ns: str) -> None:
    before = settled(shared)
    shared.kubectl("create", "configmap", "words", "--from-literal=a=b", "-n", ns)
    shared.kubectl("create", "deployment", "many", f"--image={BUSYBOX}", "-n", ns, "--", "sleep", "1000")
    shared.kubectl("expose", "deployment", "many", "--port=80", "-n", ns)
    end, number = time.monotonic() + CHURN_SECONDS, 0
    while time.monotonic() < end:
        number += 1
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": batch(number)})
        shared.kubectl("apply", "-n", ns, "-f", "-", input=manifest)
        shared.kubectl("scale", "deployment", "many", f"--replicas={number % 2 * 8}", "-n", ns)
        # Some go while they start, some at once and by force.
        force = ["--force"] if number % 3 == 0 else []
        shared.kubectl("delete", "pods", "-l", "churn=yes", "-n", ns, "--wait=false", *force)
    assert number >= 3
    shared.kubectl("delete", "namespace", ns, "--timeout=60s")

    def clean() -> bool:
        left = traces(shared) - before
        assert left == set()
        return True

    eventually(clean, "nothing is left", 40, every=1)
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
            said = process.communicate(timeout=60)[0]
            assert process.returncode == 0, said
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

    eventually(all_ended, "every pod ends well", 60)
