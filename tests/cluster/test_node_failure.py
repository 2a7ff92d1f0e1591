"""Nodes that lose their power or are cut off, and nodes that are emptied on purpose; their Services go on."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import Any

import pytest

from tests.support.cluster import BUSYBOX, WEB_IMAGE, eventually
from tests.support.kube import condition, is_ready, ready_pods, wait_phase
from tests.support.load import Load
from tests.support.machines import Machine, Machines

ANSWER = r"web-\S+ v1"


def deploy(three: Machines, ns: str, replicas: int, seconds: int) -> str:
    """Create a Deployment whose pods give up a lost node after some seconds, and its Service; return the ClusterIP."""
    gone = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in ("unreachable", "not-ready")
    ]
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    labels = {"app": "web"}
    pod = {
        "containers": [{"name": "web", "image": WEB_IMAGE}],
        "tolerations": gone,
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}],
        "terminationGracePeriodSeconds": 1,
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    three.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(made))
    three.kubectl("expose", "deployment", "web", "--port=80", "-n", ns)
    eventually(lambda: len(ready_pods(three.first, ns, "app=web")) == replicas, f"{replicas} pods are Ready", 60)
    address: str = three.get("service", "web", "-n", ns)["spec"]["clusterIP"]
    for machine in three:
        eventually(lambda m=machine: re.fullmatch(ANSWER, m.http(address)), f"{machine.node} reaches the Service")  # type: ignore[misc]
    return address


def run(three: Machines, ns: str, name: str, node: str) -> dict[str, Any]:
    """Start a pod of its own on a node."""
    spec = {"spec": {"nodeName": node, "terminationGracePeriodSeconds": 1}}
    three.kubectl("run", name, f"--image={BUSYBOX}", "-n", ns, f"--overrides={json.dumps(spec)}", "--", "sleep", "1d")
    return wait_phase(three.first, ns, name, "Running")


def nodes_of(three: Machines, ns: str) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in ready_pods(three.first, ns, "app=web"))


def pod_uids(three: Machines, ns: str, node: str) -> set[str]:
    found = three.get("pods", "-n", ns, f"--field-selector=spec.nodeName={node}")["items"]
    return {pod["metadata"]["uid"] for pod in found}


def endpoints(three: Machines, ns: str) -> dict[str, bool]:
    """Return node -> whether the Service's endpoints on it may be used."""
    found: dict[str, bool] = {}
    for slice_ in three.get("endpointslices", "-n", ns)["items"]:
        for endpoint in slice_.get("endpoints") or ():
            node = endpoint["nodeName"]
            found[node] = found.get(node, False) or endpoint["conditions"]["ready"]
    return found


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def answers_everywhere(three: Machines, ns: str, address: str) -> None:
    """Show that every machine reaches every pod of the Service."""
    names = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in ready_pods(three.first, ns, "app=web")}
    for machine in three:
        seen: set[str] = set()

        def all_seen(machine: Machine = machine, seen: set[str] = seen) -> bool:
            seen.add(machine.http(address).partition(" ")[0])
            assert names.keys() <= seen, f"{machine.node} saw {seen} of {names}"
            return True

        eventually(all_seen, f"{machine.node} reaches all pods")


def test_a_node_without_power_is_given_up_at_50_seconds_and_taken_back(three: Machines, ns3: str) -> None:
    address = deploy(three, ns3, 4, seconds=2)
    kept = run(three, ns3, "kept", "node3")
    before = pod_uids(three, ns3, "node3")
    assert len(before) >= 2, "the Deployment's pods are spread over all nodes"
    three[2].power_off()
    try:

        def given_up() -> dict[str, Any] | None:
            found = condition(three.get("node", "node3"), "Ready")
            assert found["status"] == "Unknown", found
            return found

        ready = eventually(given_up, "node3 is not Ready", 120)
        assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        lease = three.get("lease", "node3", "-n", "kube-node-lease")["spec"]["renewTime"]
        # The times are whole seconds, and the lease is looked at every 5 s.
        assert seconds(ready["lastTransitionTime"]) - seconds(lease) > 48

        def unusable() -> bool:
            return not endpoints(three, ns3).get("node3", False)

        eventually(unusable, "the Service has no endpoint on node3")
        eventually(
            lambda: all(re.fullmatch(ANSWER, three.first.http(address)) for _ in range(10)),
            "node1 asks nobody on node3 any more",
            60,
        )
        with Load(three.first, address) as load:
            eventually(
                lambda: "node3" not in nodes_of(three, ns3) and len(nodes_of(three, ns3)) == 4, "4 pods elsewhere", 60
            )
        assert [answer for answer in load.answers if not re.fullmatch(ANSWER, answer)] == []
        taints = {(t["key"], t["effect"]) for t in three.get("node", "node3")["spec"]["taints"]}
        assert {
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
        } <= taints
        pod = three.get("pod", "kept", "-n", ns3)
        assert "deletionTimestamp" not in pod["metadata"], "its toleration is 300 s"
        assert not is_ready(pod)
    finally:
        three[2].power_on()
    three.wait_ready("node3", seconds=90)
    eventually(
        lambda: pod_uids(three, ns3, "node3") == {kept["metadata"]["uid"]}, "the pods given up are cleaned away", 60
    )

    def runs_again() -> bool:
        pod = three.get("pod", "kept", "-n", ns3)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1, pod["status"]
        return is_ready(pod)

    eventually(runs_again, "the pod that tolerated it runs on", 60)
    eventually(lambda: not three.get("node", "node3")["spec"].get("taints"), "node3 has no taint")
    answers_everywhere(three, ns3, address)


def test_a_node_that_is_cut_off_keeps_its_containers_and_catches_up(three: Machines, ns3: str) -> None:
    address = deploy(three, ns3, 3, seconds=300)
    run(three, ns3, "doomed", "node2")
    mine = next(p for p in ready_pods(three.first, ns3, "app=web") if p["spec"]["nodeName"] == "node2")
    containers = {
        p["metadata"]["name"]: p["status"]["containerStatuses"] for p in three.get("pods", "-n", ns3)["items"]
    }
    ready = condition(three.get("node", "node2"), "Ready")
    begin = time.monotonic()
    three.cut(three.first, three[1])
    try:
        three.kubectl("delete", "pod", "doomed", "-n", ns3, "--wait=false")
        spec = {"spec": {"nodeName": "node2"}}
        three.kubectl("run", "fresh", f"--image={WEB_IMAGE}", "-n", ns3, f"--overrides={json.dumps(spec)}")
        lease = three.get("lease", "node2", "-n", "kube-node-lease")["spec"]["renewTime"]
        # What it has goes on without the API: its own pods answer, also through the Service and from the third machine.
        for machine in (three[1], three[2]):
            eventually(
                lambda m=machine: m.http(mine["status"]["podIP"]) == f"{mine['metadata']['name']} v1", "the pod answers"
            )  # type: ignore[misc]
        eventually(
            lambda: re.fullmatch(ANSWER, three[1].http(address)), "the Service answers on the node that is cut off"
        )
        assert three.get("lease", "node2", "-n", "kube-node-lease")["spec"]["renewTime"] == lease
        assert three.kubectl("get", "pod", "doomed", "-n", ns3, check=False).returncode == 0
    finally:
        three.heal(three.first, three[1])
    away = time.monotonic() - begin
    wait_phase(three.first, ns3, "fresh", "Running")
    eventually(lambda: three.kubectl("get", "pod", "doomed", "-n", ns3, check=False).returncode, "doomed is gone", 60)
    three.wait_ready("node2")
    for pod in three.get("pods", "-n", ns3)["items"]:
        if pod["metadata"]["name"] in containers:
            assert pod["status"]["containerStatuses"] == containers[pod["metadata"]["name"]], (
                "nothing was started again"
            )
    if away < 35:
        assert condition(three.get("node", "node2"), "Ready")["lastTransitionTime"] == ready["lastTransitionTime"]
    answers_everywhere(three, ns3, address)


def test_drain_empties_a_node_within_its_budget_and_uncordon_opens_it(three: Machines, ns3: str) -> None:
    address = deploy(three, ns3, 3, seconds=300)
    three.kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2", "-n", ns3)
    run(three, ns3, "bare", "node2")
    refused = three.kubectl("drain", "node2", "--pod-selector=run=bare", "--timeout=120s", check=False)
    assert refused.returncode != 0
    assert "cannot delete" in refused.stderr, refused.stderr
    try:
        with Load(three.first, address) as load:
            done = three.kubectl(
                "drain",
                "node2",
                "--ignore-daemonsets",
                "--force",
                "--delete-emptydir-data",
                "--timeout=120s",
                timeout=120,
            )
            assert "node/node2 drained" in done.stdout
            assert pod_uids(three, ns3, "node2") == set()
            eventually(
                lambda: len(nodes_of(three, ns3)) == 3 and "node2" not in nodes_of(three, ns3), "3 pods elsewhere", 60
            )
        assert re.fullmatch(ANSWER, load.answers[-1]), load.answers[-1]
        assert "SchedulingDisabled" in three.kubectl("get", "node", "node2").stdout
    finally:
        three.kubectl("uncordon", "node2")
    three.kubectl("scale", "deployment", "web", "--replicas=5", "-n", ns3)
    eventually(lambda: "node2" in nodes_of(three, ns3), "node2 is given pods again", 60)


@pytest.fixture(scope="module", autouse=True)
def all_ready(three: Machines) -> None:
    three.wait_ready()
