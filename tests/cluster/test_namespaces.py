"""Deletion and what follows it: namespaces, finalizers, owners, evictions, drains."""

from __future__ import annotations

import re
from typing import Any

from tests.support.cluster import NODE, WEB_IMAGE, Cluster, eventually
from tests.support.kube import condition, ready_pods, wait_pods, web
from tests.support.pods import apply, pod, status_of, wait_running
from tests.support.raw import Raw


def exists(cluster: Cluster, *what: str) -> bool:
    return cluster.kubectl("get", *what, "--ignore-not-found", "-o", "name").stdout != ""


def test_a_deleted_namespace_takes_everything_with_it(shared: Cluster) -> None:
    raw, ns = Raw(shared), "doomed"
    shared.kubectl("create", "namespace", ns)
    eventually(lambda: exists(shared, "serviceaccount", "default", "-n", ns), "the default service account")
    web(shared, ns, 2)
    shared.kubectl("create", "secret", "generic", "s", "--from-literal=a=b", "-n", ns)
    shared.kubectl("create", "role", "r", "--verb=get", "--resource=pods", "-n", ns)
    shared.kubectl("create", "quota", "q", "--hard=pods=10", "-n", ns)
    # Without it the namespace might be gone before it is looked at.
    shared.kubectl("patch", "secret", "s", "-n", ns, "-p", '{"metadata": {"finalizers": ["example.com/wait"]}}')
    shared.kubectl("delete", "namespace", ns, "--wait=false")
    found = shared.get("namespace", ns)
    assert found["status"]["phase"] == "Terminating"
    answer = raw.post(f"/api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": "late"}})
    text = f"unable to create new content in namespace {ns} because it is being terminated"
    assert answer.refusal == (403, "Forbidden", f'configmaps "late" is forbidden: {text}')
    assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    shared.kubectl("patch", "secret", "s", "-n", ns, "-p", '{"metadata": {"finalizers": null}}')
    shared.kubectl("wait", "--for=delete", f"namespace/{ns}", "--timeout=120s")
    kinds = shared.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").stdout.split()
    left = shared.kubectl("get", ",".join(kinds), "-n", ns, "--ignore-not-found", "-o", "name").stdout
    assert left == ""
    labels = shared.ctr("containers", "list", "-q", f'labels."io.kubernetes.pod.namespace"=={ns}')
    assert labels == "", "no container is left either"
    shared.kubectl("create", "namespace", ns)
    assert shared.get("pods", "-n", ns)["items"] == []
    shared.kubectl("delete", "namespace", ns)


def test_a_finalizer_holds_an_object_and_its_namespace(shared: Cluster) -> None:
    ns = "held"
    shared.kubectl("create", "namespace", ns)
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["wherry.test/hold"]}}
    apply(shared, ns, held)
    shared.kubectl("delete", "configmap", "held", "-n", ns, "--wait=false")
    found = shared.get("configmap", "held", "-n", ns)["metadata"]
    assert (found["deletionGracePeriodSeconds"], found["finalizers"]) == (0, ["wherry.test/hold"])
    shared.kubectl("delete", "namespace", ns, "--wait=false")

    def reported() -> bool:
        status = shared.get("namespace", ns)
        remaining = condition(status, "NamespaceFinalizersRemaining")
        assert remaining.get("status") == "True", status["status"]
        assert remaining["reason"] == "SomeFinalizersRemain"
        message = "Some content in the namespace has finalizers remaining: wherry.test/hold in 1 resource instances"
        assert remaining["message"] == message
        content = condition(status, "NamespaceContentRemaining")
        assert content["message"] == "Some resources are remaining: configmaps. has 1 resource instances"
        return True

    eventually(reported, "the namespace says what holds it")
    more = '[{"op":"add","path":"/metadata/finalizers/-","value":"wherry.test/more"}]'
    refused = shared.kubectl("patch", "configmap", "held", "-n", ns, "--type=json", "-p", more, check=False)
    assert "Forbidden: no new finalizers can be added if the object is being deleted" in refused.stderr
    shared.kubectl("patch", "configmap", "held", "-n", ns, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    shared.kubectl("wait", "--for=delete", f"namespace/{ns}", "--timeout=120s")


def test_dependents_are_deleted_with_their_owner_unless_orphaned(shared: Cluster, ns: str) -> None:
    web(shared, ns, 2)
    shared.kubectl("delete", "deployment", "web", "-n", ns)
    eventually(lambda: shared.get("rs,pods", "-n", ns)["items"] == [], "its sets and pods go too")

    shared.kubectl("create", "deployment", "kept", f"--image={WEB_IMAGE}", "--replicas=2", "-n", ns)
    pods = {p["metadata"]["uid"] for p in wait_pods(shared, ns, "app=kept", 2)}
    shared.kubectl("delete", "deployment", "kept", "-n", ns, "--cascade=orphan")
    (replicaset,) = shared.get("rs", "-n", ns)["items"]
    eventually(
        lambda: "ownerReferences" not in shared.get("rs", "-n", ns)["items"][0]["metadata"], "the set has no owner"
    )
    assert {p["metadata"]["uid"] for p in ready_pods(shared, ns, "app=kept")} == pods
    # A new Deployment with the same selector adopts what was left.
    shared.kubectl("create", "deployment", "kept", f"--image={WEB_IMAGE}", "--replicas=2", "-n", ns)
    owner = shared.get("deployment", "kept", "-n", ns)["metadata"]["uid"]

    def adopted() -> bool:
        found = shared.get("rs", replicaset["metadata"]["name"], "-n", ns)["metadata"]
        return bool(found.get("ownerReferences", [{}])[0].get("uid") == owner)

    eventually(adopted, "the new Deployment adopts the set")
    assert {p["metadata"]["uid"] for p in ready_pods(shared, ns, "app=kept")} == pods

    hold = '{"metadata":{"finalizers":["wherry.test/hold"]}}'
    for found in ready_pods(shared, ns, "app=kept"):
        shared.kubectl("patch", "pod", found["metadata"]["name"], "-n", ns, "--type=merge", "-p", hold)
    shared.kubectl("delete", "deployment", "kept", "-n", ns, "--cascade=foreground", "--wait=false")

    def waiting() -> bool:
        kinds = shared.get("deployments,rs", "-n", ns)["items"]
        assert [o["metadata"].get("finalizers") for o in kinds] == [["foregroundDeletion"]] * 2
        return all("deletionTimestamp" in p["metadata"] for p in shared.get("pods", "-n", ns)["items"])

    eventually(waiting, "the owners wait for the pods")
    for found in shared.get("pods", "-n", ns)["items"]:
        free = '{"metadata":{"finalizers":null}}'
        shared.kubectl("patch", "pod", found["metadata"]["name"], "-n", ns, "--type=merge", "-p", free)
    shared.kubectl("wait", "--for=delete", "deployment/kept", "-n", ns, "--timeout=120s")
    assert shared.get("rs,pods", "-n", ns)["items"] == [], "in the foreground the dependents go first"


def test_an_object_whose_owner_never_was_is_collected(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "configmap", "owner", "-n", ns)
    uid = shared.get("configmap", "owner", "-n", ns)["metadata"]["uid"]

    def child(name: str, owner: str) -> dict[str, Any]:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [reference]}}

    apply(shared, ns, child("mine", uid), child("stray", "11111111-2222-3333-4444-555555555555"))
    eventually(lambda: not exists(shared, "configmap", "stray", "-n", ns), "the stray is collected")
    assert exists(shared, "configmap", "mine", "-n", ns)
    shared.kubectl("delete", "configmap", "owner", "-n", ns)
    eventually(lambda: not exists(shared, "configmap", "mine", "-n", ns), "the owner's child is collected")


def test_a_budget_refuses_evictions_and_a_drain_waits_for_it(shared: Cluster, ns: str) -> None:
    raw = Raw(shared)
    web(shared, ns, 2)
    shared.kubectl("create", "poddisruptionbudget", "keep", "--selector=app=web", "--min-available=2", "-n", ns)

    def counted() -> bool:
        status = shared.get("poddisruptionbudget", "keep", "-n", ns)["status"]
        assert status.get("currentHealthy") == 2, status
        return bool(status["observedGeneration"] == 1 and status["disruptionsAllowed"] == 0)

    eventually(counted, "the budget is counted")
    name = ready_pods(shared, ns, "app=web")[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = raw.post(f"/api/v1/namespaces/{ns}/pods/{name}/eviction", eviction)
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.refusal == (429, "TooManyRequests", text)
    assert answer.json["details"]["causes"][0]["message"] == (
        "The disruption budget keep needs 2 healthy pods and has 2 currently"
    )
    refused = shared.kubectl(
        "drain", NODE, "--ignore-daemonsets", "--force", "--pod-selector=app=web", "--timeout=6s", check=False
    )
    try:
        assert refused.returncode == 1
        assert "error when evicting pods/" in refused.stderr
        assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.stderr
        node = shared.get("node", NODE)
        assert node["spec"]["unschedulable"] is True
        assert [t["key"] for t in node["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
        assert re.search(rf"^{NODE} +Ready,SchedulingDisabled ", shared.kubectl("get", "nodes").stdout, re.M)
        shared.kubectl("delete", "poddisruptionbudget", "keep", "-n", ns)
        done = shared.kubectl("drain", NODE, "--force", "--pod-selector=app=web", "--timeout=120s")
        assert f"node/{NODE} drained" in done.stdout

        def pending() -> bool:
            found = shared.get("pods", "-n", ns, "-l", "app=web")["items"]
            assert [p["status"]["phase"] for p in found] == ["Pending", "Pending"], found
            message = condition(found[0], "PodScheduled").get("message", "")
            assert message.startswith("0/1 nodes are available: 1 node(s) were unschedulable."), message
            return True

        eventually(pending, "the replacements find no node")
    finally:
        shared.kubectl("uncordon", NODE)
    wait_pods(shared, ns, "app=web", 2)


def test_waiting_for_what_happens(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "deployment", "web", f"--image={WEB_IMAGE}", "--replicas=2", "-n", ns)
    reported = shared.kubectl("wait", "--for=condition=Available", "deployment/web", "-n", ns, "--timeout=120s").stdout
    assert reported == "deployment.apps/web condition met\n"
    path = "--for=jsonpath={.status.readyReplicas}=2"
    assert "condition met" in shared.kubectl("wait", path, "deployment/web", "-n", ns, "--timeout=120s").stdout
    late = shared.kubectl("wait", "--for=condition=Complete", "deployment/web", "-n", ns, "--timeout=1s", check=False)
    assert late.stderr == "error: timed out waiting for the condition on deployments/web\n"
    shared.kubectl("delete", "deployment", "web", "-n", ns, "--wait=false")
    shared.kubectl("wait", "--for=delete", "pods", "-l", "app=web", "-n", ns, "--timeout=120s")


def test_a_force_deleted_pod_is_gone_at_once_and_its_containers_soon(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("gone", terminationGracePeriodSeconds=30))
    wait_running(shared, ns, "gone")
    identity = status_of(shared, ns, "gone")["containerID"].removeprefix("containerd://")
    done = shared.kubectl("delete", "pod", "gone", "-n", ns, "--grace-period=0", "--force")
    assert 'pod "gone" force deleted' in done.stdout
    assert not exists(shared, "pod", "gone", "-n", ns)
    eventually(lambda: identity not in shared.ctr("tasks", "list", "-q"), "the container is stopped")
