"""The README's first minutes, word for word."""

from __future__ import annotations

import re

from tests.support.cluster import BUSYBOX, Cluster, eventually
from tests.support.kube import container_ids, ready_pods, wait_phase, web


def test_a_service_is_answered_by_all_three_pods_from_the_node_and_from_a_pod(shared: Cluster, ns: str) -> None:
    address = web(shared, ns)
    names = {pod["metadata"]["name"] for pod in ready_pods(shared, ns, "app=web")}
    assert len(names) == 3

    def all_answer() -> bool:
        answers = {shared.http(address).split(" ")[0] for _ in range(30)}
        assert answers == names, answers
        return True

    eventually(all_answer, "answers of all three pods at the ClusterIP")

    looped = "for i in $(seq 30); do wget -q -O - http://web || echo failed; done"
    shared.kubectl("run", "client", f"--image={BUSYBOX}", "--restart=Never", "-n", ns, "--", "sh", "-c", looped)
    wait_phase(shared, ns, "client", "Succeeded")
    answers = {line.split(" ")[0] for line in shared.kubectl("logs", "client", "-n", ns).stdout.splitlines()}
    assert answers == names

    shown = shared.host.run("iptables", "-t", "nat", "-L", "KUBE-SERVICES", "-n").stdout
    assert re.search(rf"KUBE-SVC-\w{{16}} .* {address} .*/\* {ns}/web cluster IP \*/ tcp dpt:80", shown), shown


def test_a_deleted_pod_is_replaced(shared: Cluster, ns: str) -> None:
    web(shared, ns, 2)
    victim = ready_pods(shared, ns, "app=web")[0]["metadata"]["name"]
    shared.kubectl("delete", "pod", victim, "-n", ns, "--wait=false")

    def replaced() -> bool:
        names = {pod["metadata"]["name"] for pod in ready_pods(shared, ns, "app=web")}
        return len(names) == 2 and victim not in names

    eventually(replaced, "a Ready replacement")
    eventually(
        lambda: shared.kubectl("get", "pod", victim, "-n", ns, check=False).returncode == 1, "the victim is gone"
    )


def test_get_all_wide_prints_upstreams_columns(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    shown = shared.kubectl("get", "all", "-o", "wide", "-n", ns).stdout
    headings = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines() if line.startswith("NAME")]
    assert headings == [
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"],
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"],
        ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"],
        ["NAME", "DESIRED", "CURRENT", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"],
    ]
    assert re.search(
        r"pod/web-[a-z0-9]+-[a-z0-9]{5} +1/1 +Running +0 +\S+ +10\.244\.\d+\.\d+ +node1 +<none> +<none>", shown
    )
    assert re.search(r"deployment.apps/web +1/1 +1 +1 +\S+ +web +wherry.test/web:1 +app=web", shown)
    assert re.search(r"replicaset.apps/web-[a-z0-9]+ +1 +1 +1 ", shown)


def test_the_nodes_own_view_agrees_with_the_runtime(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    ids = {cid.removeprefix("containerd://") for key, (cid, _) in container_ids(shared).items() if key.startswith(ns)}
    running = set(shared.ctr("tasks", "list", "-q").split())
    assert ids <= running
