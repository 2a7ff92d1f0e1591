"""Jobs, CronJobs, DaemonSets, StatefulSets with storage, budgets and priorities: with real pods, through kubectl."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cluster import BUSYBOX, NODE, WEB2_IMAGE, WEB_IMAGE, Cluster, eventually
from tests.support.kube import condition, events, wait_phase, wait_pods, web


def apply(cluster: Cluster, ns: str, *objects: dict[str, Any]) -> None:
    listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(listing))


def template(app: str, command: str = "", image: str = BUSYBOX, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": image, **spec.pop("container", {})}
    if command:
        container["command"] = ["sh", "-c", command]
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def job(name: str, command: str, **spec: Any) -> dict[str, Any]:
    pod = template(name, command, restartPolicy="Never")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod, **spec}}


def test_a_job_runs_its_pods_to_the_end_and_keeps_their_output(shared: Cluster, ns: str) -> None:
    command = "echo index $JOB_COMPLETION_INDEX on $HOSTNAME"
    apply(shared, ns, job("each", command, completions=3, parallelism=3, completionMode="Indexed"))
    shared.kubectl("wait", "--for=condition=complete", "job/each", "-n", ns, "--timeout=60s")
    found = shared.get("job", "each", "-n", ns)["status"]
    assert (found["succeeded"], found["completedIndexes"]) == (3, "0-2")
    said = shared.kubectl("logs", "-n", ns, "-l", "batch.kubernetes.io/job-name=each").stdout.split("\n")
    assert sorted(line for line in said if line) == [f"index {n} on each-{n}" for n in range(3)]
    line = shared.kubectl("get", "job", "each", "-n", ns, "--no-headers").stdout.split()
    assert line[:3] == ["each", "Complete", "3/3"]
    assert [e["message"] for e in events(shared, ns, "each") if e["reason"] == "Completed"] == ["Job completed"]


def test_a_failing_job_is_given_up_by_its_policy(shared: Cluster, ns: str) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    apply(shared, ns, job("bad", "exit 42", podFailurePolicy={"rules": [rule]}))
    shared.kubectl("wait", "--for=condition=failed", "job/bad", "-n", ns, "--timeout=60s")
    failed = condition(shared.get("job", "bad", "-n", ns), "Failed")
    assert (
        failed["reason"] == "PodFailurePolicy" and "exit code 42 matching FailJob rule at index 0" in failed["message"]
    )


def test_a_job_can_be_started_from_a_cron_job_by_hand(shared: Cluster, ns: str) -> None:
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("x", "echo once")["spec"]}}
    apply(shared, ns, {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "yearly"}, "spec": spec})
    shared.kubectl("create", "job", "now", "--from=cronjob/yearly", "-n", ns)
    shared.kubectl("wait", "--for=condition=complete", "job/now", "-n", ns, "--timeout=60s")
    assert shared.kubectl("logs", "job/now", "-n", ns).stdout == "once\n"


def test_a_daemon_set_runs_once_on_the_node_and_is_updated(shared: Cluster, ns: str) -> None:
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template("d", image=WEB_IMAGE)}
    apply(shared, ns, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec})
    shared.kubectl("rollout", "status", "ds/d", "-n", ns, "--timeout=60s")
    (pod,) = wait_pods(shared, ns, "app=d", 1)
    assert pod["spec"]["nodeName"] == NODE
    shared.kubectl("set", "image", "ds/d", f"c={WEB2_IMAGE}", "-n", ns)
    shared.kubectl("rollout", "status", "ds/d", "-n", ns, "--timeout=60s")
    (pod,) = wait_pods(shared, ns, "app=d", 1)
    assert pod["spec"]["containers"][0]["image"] == WEB2_IMAGE


def test_a_stateful_set_keeps_names_and_storage(shared: Cluster, ns: str) -> None:
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{ns}-disk{n}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": ns,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"{shared.prefix}/volumes/{ns}-{n}", "type": "DirectoryOrCreate"},
            },
        }
        for n in range(2)
    ]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": ns,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    command = "cat /data/said 2>/dev/null; hostname >> /data/said; sync; exec sleep 1000"
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = {
        "serviceName": "db",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", command, container=mounts),
        "volumeClaimTemplates": [claim],
    }
    apply(
        shared, ns, *volumes, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    )
    try:
        shared.kubectl("rollout", "status", "sts/db", "-n", ns, "--timeout=60s")
        claims = {c["metadata"]["name"]: c["status"]["phase"] for c in shared.get("pvc", "-n", ns)["items"]}
        assert claims == {"data-db-0": "Bound", "data-db-1": "Bound"}
        first = shared.get("pod", "db-1", "-n", ns)["metadata"]["uid"]
        shared.kubectl("delete", "pod", "db-1", "-n", ns)
        eventually(lambda: _uid(shared, ns, "db-1") not in ("", first), "a new db-1")
        wait_phase(shared, ns, "db-1", "Running")
        eventually(
            lambda: shared.kubectl("logs", "db-1", "-n", ns, check=False).stdout == "db-1\n",
            "what the one before wrote",
        )
    finally:
        shared.kubectl("delete", "sts/db", "-n", ns, "--wait=false", check=False)
        shared.kubectl("delete", "pv", *(v["metadata"]["name"] for v in volumes), "--wait=false", check=False)


def _uid(cluster: Cluster, ns: str, pod: str) -> str:
    return cluster.kubectl("get", "pod", pod, "-n", ns, "-o", "jsonpath={.metadata.uid}", check=False).stdout


def test_a_budget_holds_an_eviction_back_until_there_are_enough_pods(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    shared.kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1", "-n", ns)
    eventually(
        lambda: shared.get("pdb", "web", "-n", ns)["status"].get("currentHealthy") == 1, "the budget counts the pod"
    )
    (pod,) = wait_pods(shared, ns, "app=web", 1)
    name = pod["metadata"]["name"]
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": ns}})
    path = f"/api/v1/namespaces/{ns}/pods/{name}/eviction"
    refused = shared.kubectl("create", "--raw", path, "-f", "-", input=body, check=False)
    assert refused.returncode and "disruption budget" in refused.stderr
    shared.kubectl("scale", "deployment", "web", "--replicas=2", "-n", ns)
    wait_pods(shared, ns, "app=web", 2)

    def evicted() -> bool:
        return not shared.kubectl("create", "--raw", path, "-f", "-", input=body, check=False).returncode

    eventually(evicted, "the eviction is allowed")


def test_a_more_important_pod_takes_a_lesser_ones_place(shared: Cluster, ns: str) -> None:
    cpu = shared.get("node", NODE)["status"]["allocatable"]["cpu"]
    millis = int(float(cpu.removesuffix("m")) * (1 if cpu.endswith("m") else 1000))
    asks = {"container": {"resources": {"requests": {"cpu": f"{millis * 6 // 10}m"}}}}
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"{ns}-important"},
        "value": 1000,
    }

    def pod(name: str, **more: Any) -> dict[str, Any]:
        spec = template(name, "exec sleep 1000", **asks, **more)["spec"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    try:
        apply(shared, ns, important, pod("lesser"))
        wait_phase(shared, ns, "lesser", "Running")
        apply(shared, ns, pod("peer"))
        eventually(
            lambda: [e for e in events(shared, ns, "peer") if e["reason"] == "FailedScheduling"], "no room for a peer"
        )
        message = events(shared, ns, "peer")[0]["message"]
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert message.endswith("1 No preemption victims found for incoming pod.")
        apply(shared, ns, pod("vip", priorityClassName=f"{ns}-important"))
        wait_phase(shared, ns, "vip", "Running")
        assert shared.kubectl("get", "pod", "lesser", "-n", ns, check=False).returncode
    finally:
        shared.kubectl("delete", "priorityclass", f"{ns}-important", "--wait=false", check=False)
        shared.kubectl("delete", "pod", "--all", "-n", ns, "--wait=false", check=False)
