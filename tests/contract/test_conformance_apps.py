"""Upstream's conformance tests of sig-apps, step by step, that no other test covers (docs/conformance.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kube.clock import SYSTEM, format_time
from kube.json_object import Object
from tests.support.conformance_site import MERGE, STRATEGIC, Site, condition, has, place, site, template

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("conformance-apps")) as running:
        yield running


def workload(kind: str, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    labels = labels or {"app": name}
    selector: Any = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return {
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": selector, "template": template(labels), **spec},
    }


def ready(count: int) -> Any:
    return lambda obj: obj.get("status", {}).get("readyReplicas", 0) == count


WORKLOADS = [
    ("Deployment", "deployments", {"replicas": 1}),
    ("ReplicaSet", "replicasets", {"replicas": 1}),
    ("StatefulSet", "statefulsets", {"replicas": 1, "serviceName": "s"}),
    ("DaemonSet", "daemonsets", {}),
]


@pytest.mark.parametrize(("kind", "plural", "spec"), WORKLOADS, ids=lambda value: str(value)[:12])
async def test_a_status_written_by_hand_is_seen_by_those_who_watch(at: Site, kind: str, plural: str, spec: Any) -> None:
    namespace = await at.namespace()
    path = place(plural, namespace, "w")
    await at.post(place(plural, namespace), workload(kind, "w", **spec))
    await at.settles(
        path,
        lambda o: (
            o["status"].get("readyReplicas", o["status"].get("numberReady"))
            == (2 if kind[0] == "D" and kind[1] == "a" else 1)
        ),
    )
    assert (await at.read(path + "/status"))["kind"] == kind
    async with at.watch(place(plural, namespace), labelSelector="app=w") as watch:
        await at.change(
            path, lambda o: o["status"].setdefault("conditions", []).append(condition("StatusUpdate")), "status"
        )
        await watch.until("MODIFIED", has("StatusUpdate"))
        patch = {"status": {"conditions": [{"type": "StatusPatched", "status": "True"}]}}
        patched = await at.patch(path + "/status", patch, MERGE)
        assert [c["type"] for c in patched["status"]["conditions"]] == ["StatusPatched"]
        await watch.until("MODIFIED", has("StatusPatched"))


@pytest.mark.parametrize(("kind", "plural", "spec"), WORKLOADS, ids=lambda value: str(value)[:12])
async def test_a_labelled_collection_is_listed_patched_and_deleted(at: Site, kind: str, plural: str, spec: Any) -> None:
    namespace = await at.namespace()
    for name in ("a", "b"):
        await at.post(place(plural, namespace), workload(kind, name, {"set": f"{plural}-x", "which": name}, **spec))
    everywhere = place(plural, "", labelSelector=f"set={plural}-x")
    assert len(await at.items(everywhere)) == 2
    payload = {
        "metadata": {"labels": {"patched": "yes"}},
        "spec": {
            "template": {"spec": {"terminationGracePeriodSeconds": 10, "containers": [{"name": "c", "image": "two"}]}}
        },
    }
    patched = await at.patch(place(plural, namespace, "a"), payload)
    assert patched["metadata"]["labels"]["patched"] == "yes"
    assert patched["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 10
    assert [c["image"] for c in patched["spec"]["template"]["spec"]["containers"]] == ["two"]
    await at.delete(place(plural, namespace, labelSelector=f"set={plural}-x"))
    await at.gone(everywhere)
    await at.gone(place("pods", namespace))


SCALED = [*WORKLOADS[:3], ("ReplicationController", "replicationcontrollers", {"replicas": 1})]


@pytest.mark.parametrize(("kind", "plural", "spec"), SCALED, ids=lambda value: str(value)[:12])
async def test_the_scale_is_read_updated_and_patched(at: Site, kind: str, plural: str, spec: Any) -> None:
    namespace = await at.namespace()
    path = place(plural, namespace, "w")
    await at.post(place(plural, namespace), workload(kind, "w", **spec))
    await at.settles(path, ready(1))
    scale = await at.read(path + "/scale")
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["replicas"]) == ("Scale", 1, 1)
    assert scale["status"]["selector"] == "app=w"
    scale["metadata"].pop("resourceVersion")  # the tests write it back as it was made, without one
    scale["spec"]["replicas"] = 2
    written = await at.ok("PUT", path + "/scale", scale)
    assert written["spec"]["replicas"] == 2
    assert (await at.read(path))["spec"]["replicas"] == 2
    await at.settles(path, ready(2))
    patched = await at.patch(path + "/scale", {"spec": {"replicas": 4}}, STRATEGIC)
    assert patched["spec"]["replicas"] == 4
    assert (await at.read(path))["spec"]["replicas"] == 4
    await at.settles(path, ready(4))


async def test_a_watch_reports_the_lifecycle_of_a_deployment(at: Site) -> None:
    namespace = await at.namespace()
    deployments, path = place("deployments", namespace), place("deployments", namespace, "d")
    async with at.watch(deployments, labelSelector="static=true") as watch:
        labels = {"static": "true"}
        await at.post(deployments, workload("Deployment", "d", labels, replicas=2))
        await watch.until("ADDED")
        await watch.until("MODIFIED", lambda o: o["status"].get("availableReplicas") == 2)
        container = {"name": "c", "image": "two", "command": ["/bin/sleep", "100000"]}
        spec = {"replicas": 3, "template": {"spec": {"TerminationGracePeriodSeconds": 1, "containers": [container]}}}
        code, _ = await at.send(
            "PATCH", path, {"metadata": {"labels": {"test": "patched"}}, "spec": spec}, Content_Type=STRATEGIC
        )
        assert code == 200, "a field of another case is dropped, with a warning"
        await watch.until(
            "MODIFIED", lambda o: o["status"].get("readyReplicas") == o["status"].get("updatedReplicas") == 3
        )
        patch = {
            "metadata": {"labels": {"test": "patched-status"}},
            "status": {"readyReplicas": 0, "availableReplicas": 0},
        }
        await at.patch(path + "/status", patch)
        await watch.until("MODIFIED", lambda o: not o["status"].get("readyReplicas"))
        await at.settles(path, ready(3))  # the controller knows better
        assert (await at.read(path))["metadata"]["labels"]["test"] == "patched"
        await at.change(path, lambda o: o["spec"].update(replicas=1) or o["metadata"]["labels"].update(test="updated"))
        await watch.until("MODIFIED", lambda o: o["status"].get("replicas") == 1)
        conditions = {"conditions": [{**condition("StatusUpdate"), "message": "m"}]}
        await at.change(path, lambda o: o["status"].update(conditions), "status")
        await watch.until("MODIFIED", has("StatusUpdate"))
        await at.delete(place("deployments", namespace, labelSelector="static=true"))
        await watch.until("DELETED")


async def test_a_watch_reports_the_lifecycle_of_a_replication_controller(at: Site) -> None:
    namespace = await at.namespace()
    controllers, path = place("replicationcontrollers", namespace), place("replicationcontrollers", namespace, "rc")
    async with at.watch(controllers, labelSelector="static=true") as watch:
        await at.post(controllers, workload("ReplicationController", "rc", {"static": "true"}, replicas=1))
        await watch.until("ADDED")
        await watch.until("MODIFIED", ready(1))
        await at.patch(path, {"metadata": {"labels": {"test": "patched"}}})
        await watch.until("MODIFIED", lambda o: o["metadata"]["labels"].get("test") == "patched")
        patch = {"status": {"readyReplicas": 0, "availableReplicas": 0}}
        patched = await at.patch(path + "/status", patch)
        assert not patched["status"].get("readyReplicas")
        await watch.until("MODIFIED", lambda o: not o["status"].get("readyReplicas"))
        await watch.until("MODIFIED", ready(1))
        assert (await at.read(path + "/status"))["kind"] == "ReplicationController"
        await at.patch(path + "/scale", {"spec": {"replicas": 2}})
        await watch.until("MODIFIED", ready(2))
        await at.change(path, lambda o: o["metadata"]["labels"].update(seen="yes"))
        await at.delete(place("replicationcontrollers", namespace, labelSelector="static=true"))
        await watch.until("DELETED")


@pytest.mark.parametrize(
    ("kind", "plural"), [("ReplicaSet", "replicasets"), ("ReplicationController", "replicationcontrollers")]
)
async def test_what_a_quota_forbids_shows_as_a_failure_until_it_fits(at: Site, kind: str, plural: str) -> None:
    namespace = await at.namespace()
    await at.post(place("resourcequotas", namespace), {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
    await at.settles(place("resourcequotas", namespace, "q"), lambda q: q["status"].get("hard", {}).get("pods") == "2")
    path = place(plural, namespace, "w")
    await at.post(place(plural, namespace), workload(kind, "w", replicas=3))
    found = await at.settles(path, has("ReplicaFailure"))
    (failure,) = (c for c in found["status"]["conditions"] if c["type"] == "ReplicaFailure")
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate") and "exceeded quota" in failure["message"]
    await at.change(path, lambda o: o["spec"].update(replicas=2))
    await at.settles(path, lambda o: not has("ReplicaFailure")(o))


@pytest.mark.parametrize(
    ("kind", "plural"), [("ReplicaSet", "replicasets"), ("ReplicationController", "replicationcontrollers")]
)
async def test_a_matching_pod_is_adopted_and_one_that_no_longer_matches_is_released(
    at: Site, kind: str, plural: str
) -> None:
    namespace = await at.namespace()
    labels = {"name": "adopted"}
    pod = {"metadata": {"name": "p", "labels": labels}, "spec": template(labels)["spec"]}
    await at.post(place("pods", namespace), pod)
    made = await at.post(place(plural, namespace), workload(kind, "w", labels, replicas=1))
    owner = made["metadata"]["uid"]
    path = place("pods", namespace, "p")
    await at.settles(path, lambda o: [r["uid"] for r in o["metadata"].get("ownerReferences", [])] == [owner])
    await at.change(path, lambda o: o["metadata"]["labels"].update(name="another"))
    await at.settles(path, lambda o: not o["metadata"].get("ownerReferences"))
    await at.settles(place(plural, namespace, "w"), ready(1))


async def test_controller_revisions_are_listed_made_patched_and_swept(at: Site) -> None:
    namespace = await at.namespace()
    revisions = place("controllerrevisions", namespace)
    labelled = revisions + "?labelSelector=set%3Dds"
    ds = await at.post(place("daemonsets", namespace), workload("DaemonSet", "ds", {"set": "ds"}))
    found = await at.settles(place("daemonsets", namespace, "ds"), lambda o: o["status"].get("numberReady") == 2)
    (first,) = await at.items(labelled)
    assert first["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    name = first["metadata"]["name"]
    patched = await at.patch(f"{revisions}/{name}", {"metadata": {"labels": {name: "patched"}}})
    assert patched["metadata"]["labels"][name] == "patched"
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "ds",
        "uid": ds["metadata"]["uid"],
        "controller": True,
    }
    meta = {
        "name": "ds-5c8b4d9f6f",
        "labels": {"set": "ds", "controller-revision-hash": "5c8b4d9f6f"},
        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
    }
    await at.post(revisions, {"metadata": meta, "data": first["data"], "revision": first["revision"] + 1})
    assert len(await at.items(labelled)) == 2
    await at.delete(f"{revisions}/{name}")
    (left,) = (await at.settles(labelled, lambda o: len(o["items"]) == 1))["items"]
    await at.change(f"{revisions}/{left['metadata']['name']}", lambda o: o["metadata"]["labels"].update(now="updated"))
    change = {
        "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}},
        "updateStrategy": {"type": "RollingUpdate"},
    }
    await at.patch(place("daemonsets", namespace, "ds"), change)
    await at.settles(labelled, lambda o: len(o["items"]) == 2)
    await at.delete(revisions + "?labelSelector=now%3Dupdated")
    (last,) = (await at.settles(labelled, lambda o: len(o["items"]) == 1))["items"]
    assert last["revision"] == 3
    assert found["metadata"]["uid"] == ds["metadata"]["uid"]


async def test_a_failed_pod_of_a_daemon_or_a_stateful_set_is_made_anew(at: Site) -> None:
    namespace = await at.namespace()
    await at.post(place("daemonsets", namespace), workload("DaemonSet", "ds"))
    await at.post(place("statefulsets", namespace), workload("StatefulSet", "ss", replicas=1, serviceName="s"))
    await at.settles(place("daemonsets", namespace, "ds"), lambda o: o["status"].get("numberReady") == 2)
    await at.settles(place("statefulsets", namespace, "ss"), ready(1))
    for selector in ("app=ds", "app=ss"):
        pod = (await at.items(place("pods", namespace, labelSelector=selector)))[0]
        path = place("pods", namespace, pod["metadata"]["name"])
        if selector == "app=ds":

            def failing(obj: Object) -> None:
                obj["metadata"].pop("resourceVersion")
                obj["status"]["phase"] = "Failed"

            await at.change(path, failing, "status")
        else:
            await at.patch(path + "/status", {"status": {"phase": "Failed", "reason": "Evicted"}}, MERGE)
        uid = pod["metadata"]["uid"]
        await at.settles(
            place("pods", namespace, labelSelector=selector),
            lambda o, uid=uid, n=2 if selector == "app=ds" else 1: (
                len(o["items"]) == n  # type: ignore[misc]
                and all(p["status"].get("phase") == "Running" and p["metadata"]["uid"] != uid for p in o["items"])
            ),
        )


async def test_a_daemon_follows_the_labels_of_nodes(at: Site) -> None:
    namespace = await at.namespace()
    body = workload("DaemonSet", "ds")
    body["spec"]["template"]["spec"]["nodeSelector"] = {"color": "blue"}
    path = place("daemonsets", namespace, "ds")
    await at.post(place("daemonsets", namespace), body)
    await at.settles(
        path, lambda o: o["status"].get("observedGeneration") == 1 and o["status"]["desiredNumberScheduled"] == 0
    )
    await at.patch(place("nodes", "", "n0"), {"metadata": {"labels": {"color": "blue"}}})
    await at.settles(path, lambda o: o["status"].get("numberReady") == 1)
    await at.patch(place("nodes", "", "n0"), {"metadata": {"labels": {"color": "green"}}})
    await at.gone(place("pods", namespace))
    change = {
        "spec": {
            "template": {"spec": {"nodeSelector": {"color": "green"}}},
            "updateStrategy": {"type": "RollingUpdate"},
        }
    }
    await at.patch(path, change)
    await at.settles(path, lambda o: o["status"].get("numberReady") == 1)
    await at.patch(place("nodes", "", "n0"), {"metadata": {"labels": {"color": None}}})


async def test_a_daemon_is_rolled_back_without_restarting_what_was_never_replaced(at: Site) -> None:
    namespace = await at.namespace()
    path = place("daemonsets", namespace, "ds")
    await at.post(place("daemonsets", namespace), workload("DaemonSet", "ds"))
    await at.settles(path, lambda o: o["status"].get("numberReady") == 2)
    before = {p["metadata"]["uid"] for p in await at.items(place("pods", namespace))}
    at.nodes.behave = lambda pod: ("Pending", False) if pod.spec.containers[0].image == "broken" else ("Running", True)

    def image(name: str) -> Any:
        return lambda o: o["spec"]["template"]["spec"]["containers"][0].update(image=name)

    try:
        await at.change(path, image("broken"))
        stuck = await at.settles(
            place("pods", namespace),
            lambda o: [p for p in o["items"] if p["spec"]["containers"][0]["image"] == "broken"],
        )
        kept = before & {p["metadata"]["uid"] for p in stuck["items"]}
        assert len(kept) == 1, "one at a time"
        await at.change(path, image("httpd"))
        await at.settles(
            path,
            lambda o: (
                o["status"].get("observedGeneration") == o["metadata"]["generation"]
                and o["status"].get("numberReady") == o["status"].get("updatedNumberScheduled") == 2
            ),
        )
        assert kept <= {p["metadata"]["uid"] for p in await at.items(place("pods", namespace))}
    finally:
        at.nodes.behave = lambda pod: ("Running", True)


async def test_an_eviction_is_blocked_until_the_budget_allows_it(at: Site) -> None:
    namespace = await at.namespace()
    budgets, path = place("poddisruptionbudgets", namespace), place("poddisruptionbudgets", namespace, "b")
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "w"}}, "minAvailable": 3}}
    await at.post(budgets, budget)
    await at.post(place("replicasets", namespace), workload("ReplicaSet", "w", replicas=3))
    await at.settles(path, lambda o: o["status"].get("currentHealthy") == 3 and o["status"]["observedGeneration"] == 1)
    name = (await at.items(place("pods", namespace)))[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    code, refusal = await at.send("POST", place("pods", namespace, name, "eviction"), eviction)
    assert (code, refusal["reason"]) == (429, "TooManyRequests")
    assert refusal["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await at.change(path, lambda o: o["spec"].update(minAvailable=2))
    await at.settles(path, lambda o: o["status"]["disruptionsAllowed"] == 1)
    # Its status can be written by hand, too.
    at_now = format_time(SYSTEM.now())
    await at.change(path, lambda o: o["status"].setdefault("disruptedPods", {}).update({name: at_now}), "status")
    await at.settles(path, lambda o: name in o["status"].get("disruptedPods", {}))
    await at.patch(path + "/status", {"status": {"disruptedPods": None}}, MERGE)
    await at.settles(path, lambda o: not o["status"].get("disruptedPods") and o["status"]["disruptionsAllowed"] == 1)
    await at.post(place("pods", namespace, name, "eviction"), eviction)
    # Back to strict by a patch, which blocks again.
    patched = await at.patch(path, {"spec": {"minAvailable": "100%"}}, MERGE)
    assert patched["spec"]["minAvailable"] == "100%"
    await at.settles(path, lambda o: o["status"]["disruptionsAllowed"] == 0 and o["status"]["currentHealthy"] == 3)
    await at.delete(budgets)
    await at.gone(budgets)
