"""Upstream's conformance tests of jobs, cron jobs, stateful sets and deployments (docs/conformance.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kube.clock import SYSTEM, format_time
from kube.json_object import Object
from tests.support.conformance_site import MERGE, Site, has, place, site, template

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("conformance-batch")) as running:
        yield running


def job(name: str = "j", **spec: Any) -> Object:
    pod = template({"app": name}, restartPolicy="Never")
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"template": pod, **spec}}


async def failed(at: Site, namespace: str, pod: Object, exit_code: int, **conditions: str) -> None:
    """Let a pod end as a kubelet would say it."""
    state = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    container = {"name": "c", "image": "httpd", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": [container],
        "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
    }
    await at.patch(place("pods", namespace, pod["metadata"]["name"], "status"), {"status": status}, MERGE)


async def pods_of(at: Site, namespace: str, count: int) -> list[Object]:
    """Wait for as many running pods, and return them."""

    def running(listing: Object) -> list[Object]:
        return [p for p in listing["items"] if p["status"].get("phase") == "Running"]

    return running(await at.settles(place("pods", namespace), lambda o: len(running(o)) == count))


def index_of(pod: Object) -> str:
    return str(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


async def test_the_status_of_a_job_is_written_by_hand(at: Site) -> None:
    namespace = await at.namespace()
    path = place("jobs", namespace, "j")
    made = await at.post(place("jobs", namespace), job(parallelism=2, completions=4, backoffLimit=6))
    await pods_of(at, namespace, 2)
    await at.settles(path, lambda o: o["status"].get("ready") == 2)
    now = format_time(SYSTEM.now())
    status = {"conditions": [{"type": "CustomConditionType", "status": "True", "lastTransitionTime": now}]}
    patched = await at.patch(
        path + "/status", {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": status}, MERGE
    )
    assert patched["status"]["conditions"][0]["lastTransitionTime"] == now
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
    later = "2040-01-01T00:00:00Z"
    updated = await at.change(path, lambda o: o["status"]["conditions"][0].update(lastTransitionTime=later), "status")
    assert updated["status"]["conditions"][0]["lastTransitionTime"] == later
    assert (await at.read(path + "/status"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_suspended_job_is_patched_resumed_and_swept(at: Site) -> None:
    namespace = await at.namespace()
    jobs, path = place("jobs", namespace), place("jobs", namespace, "j")
    async with at.watch(jobs, labelSelector="app=j") as watch:
        await at.post(jobs, job(parallelism=2, completions=2, suspend=True))
        await at.patch(path, {"metadata": {"labels": {"j": "patched"}}})
        await watch.until("MODIFIED", lambda o: o["metadata"]["labels"].get("j") == "patched")
        await at.settles(path, has("Suspended"))
        await at.change(path, lambda o: o["spec"].update(suspend=False) or o["metadata"].update(annotations={"u": "t"}))
        await watch.until("MODIFIED", lambda o: o["metadata"].get("annotations", {}).get("u") == "t")
        for pod in await pods_of(at, namespace, 2):
            await failed(at, namespace, pod, 0)
        await at.settles(path, has("Complete"))
        await at.delete(jobs + "?labelSelector=app%3Dj", propagationPolicy="Background")
        await watch.until("DELETED")
        await at.gone(place("pods", namespace))


async def test_a_job_takes_back_an_orphan_and_lets_go_what_no_longer_matches(at: Site) -> None:
    namespace = await at.namespace()
    made = await at.post(place("jobs", namespace), job(parallelism=2, completions=4))
    pod = (await pods_of(at, namespace, 2))[0]
    path = place("pods", namespace, pod["metadata"]["name"])
    await at.change(path, lambda o: o["metadata"].update(ownerReferences=[]))
    await at.settles(
        path, lambda o: [r["uid"] for r in o["metadata"].get("ownerReferences", [])] == [made["metadata"]["uid"]]
    )
    await at.change(path, lambda o: o["metadata"].update(labels={}))
    await at.settles(path, lambda o: not o["metadata"].get("ownerReferences"))


async def test_a_pod_failure_policy_fails_the_job_an_index_or_nothing(at: Site) -> None:
    namespace = await at.namespace()
    on_exit: Object = {"operator": "In", "values": [42]}
    rules: list[Object] = [{"action": "FailJob", "onExitCodes": on_exit}]
    await at.post(place("jobs", namespace), job(podFailurePolicy={"rules": rules}, backoffLimit=3))
    (pod,) = await pods_of(at, namespace, 1)
    await failed(at, namespace, pod, 42)
    found = await at.settles(place("jobs", namespace, "j"), has("Failed"))
    assert {c["type"]: c["reason"] for c in found["status"]["conditions"]} == {
        "FailureTarget": "PodFailurePolicy",
        "Failed": "PodFailurePolicy",
    }

    namespace = await at.namespace()
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    rules = [{"action": "Ignore", "onPodConditions": disrupted}]
    await at.post(place("jobs", namespace), job(podFailurePolicy={"rules": rules}, backoffLimit=0))
    (pod,) = await pods_of(at, namespace, 1)
    await failed(at, namespace, pod, 137, DisruptionTarget="True")
    (pod,) = await pods_of(at, namespace, 1)
    await failed(at, namespace, pod, 0)
    found = await at.settles(place("jobs", namespace, "j"), has("Complete"))
    assert not found["status"].get("failed")

    namespace = await at.namespace()
    rules = [{"action": "FailIndex", "onExitCodes": on_exit}]
    indexed: Object = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}
    await at.post(place("jobs", namespace), job(podFailurePolicy={"rules": rules}, **indexed))
    for pod in await pods_of(at, namespace, 2):
        assert pod["spec"]["hostname"] == f"j-{index_of(pod)}"
        await failed(at, namespace, pod, 42 if index_of(pod) == "0" else 0)
    found = await at.settles(place("jobs", namespace, "j"), has("Failed"))
    status = found["status"]
    assert (status["failedIndexes"], status["completedIndexes"], status["failed"]) == ("0", "1", 1)
    assert {c["type"]: c["reason"] for c in status["conditions"]}["Failed"] == "FailedIndexes"


async def test_indexes_may_fail_up_to_a_number(at: Site) -> None:
    namespace = await at.namespace()
    spec: Object = {"completionMode": "Indexed", "completions": 4, "parallelism": 1, "backoffLimitPerIndex": 0}
    await at.post(place("jobs", namespace), job(maxFailedIndexes=0, **spec))
    (first,) = await pods_of(at, namespace, 1)
    await failed(at, namespace, first, 1)
    found = await at.settles(place("jobs", namespace, "j"), has("Failed"))
    assert found["status"]["failedIndexes"] == "0"
    assert {c["reason"] for c in found["status"]["conditions"]} == {"MaxFailedIndexesExceeded"}


@pytest.mark.parametrize(
    "rule", [{"succeededIndexes": "0-1", "succeededCount": 1}, {"succeededIndexes": "0"}, {"succeededCount": 1}]
)
async def test_a_success_policy_ends_a_job_early(at: Site, rule: Object) -> None:
    namespace = await at.namespace()
    spec: Object = {"completionMode": "Indexed", "completions": 5, "parallelism": 2}
    await at.post(place("jobs", namespace), job(successPolicy={"rules": [rule]}, **spec))
    first = next(p for p in await pods_of(at, namespace, 2) if index_of(p) == "0")
    await failed(at, namespace, first, 0)
    found = await at.settles(place("jobs", namespace, "j"), has("Complete"))
    assert found["status"]["completedIndexes"] == "0"
    reasons = {c["type"]: c["reason"] for c in found["status"]["conditions"]}
    assert reasons == {"SuccessCriteriaMet": "SuccessPolicy", "Complete": "SuccessPolicy"}
    assert "terminating" not in found["status"] or found["status"]["terminating"] == 0


async def test_a_cron_jobs_status_and_its_list_of_what_runs(at: Site) -> None:
    namespace = await at.namespace()
    jobs, path = place("cronjobs", namespace), place("cronjobs", namespace, "c")
    spec = {"schedule": "*/1 * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job()["spec"]}}
    async with at.watch(jobs, labelSelector="special=yes") as watch:
        await at.post(
            jobs, {"metadata": {"name": "c", "labels": {"special": "yes"}}, "spec": {**spec, "suspend": True}}
        )
        await at.patch(path, {"metadata": {"annotations": {"patched": "true"}}}, MERGE)
        await watch.until("MODIFIED", lambda o: o["metadata"].get("annotations", {}).get("patched") == "true")
        now = format_time(SYSTEM.now())
        annotations = {"annotations": {"patchedstatus": "true"}}
        patched = await at.patch(
            path + "/status", {"metadata": annotations, "status": {"lastScheduleTime": now}}, MERGE
        )
        assert patched["status"]["lastScheduleTime"] == now
        assert patched["metadata"]["annotations"] == {"patched": "true", "patchedstatus": "true"}
        later = "2040-01-01T00:00:00Z"
        updated = await at.change(path, lambda o: o["status"].update(lastScheduleTime=later), "status")
        assert updated["status"]["lastScheduleTime"] == later
        assert (await at.read(path + "/status"))["kind"] == "CronJob"
        await at.delete(path)
        await watch.until("DELETED")
    assert await at.items(place("jobs", namespace)) == []


async def test_a_stateful_set_halts_at_an_unhealthy_pod_unless_it_is_parallel(at: Site) -> None:
    sick: set[str] = set()
    at.nodes.behave = lambda pod: ("Running", pod.metadata.name not in sick)
    try:
        for policy in ("OrderedReady", "Parallel"):
            namespace = await at.namespace()
            path, pods = place("statefulsets", namespace, "ss"), place("pods", namespace)
            labels = {"app": f"ss-{policy.lower()}"}
            spec = {"selector": {"matchLabels": labels}, "template": template(labels), "serviceName": "s"}
            body = {"metadata": {"name": "ss"}, "spec": {**spec, "replicas": 1, "podManagementPolicy": policy}}
            sick.add("ss-0")
            async with at.watch(pods) as watch:
                await at.post(place("statefulsets", namespace), body)
                await at.settles(
                    path, lambda o: o["status"].get("replicas") == 1 and not o["status"].get("readyReplicas")
                )
                await at.patch(path + "/scale", {"spec": {"replicas": 3}}, MERGE)
                if policy == "OrderedReady":
                    await at.settles(path, lambda o: o["status"].get("observedGeneration") == 2)
                    assert [p["metadata"]["name"] for p in await at.items(pods)] == ["ss-0"]
                    sick.clear()
                    at.nodes.again()
                await at.settles(pods, lambda o: len(o["items"]) == 3)
                for name in ("ss-0", "ss-1", "ss-2"):  # the watch may be behind the list
                    await watch.until("ADDED", lambda o, name=name: o["metadata"]["name"] == name)  # type: ignore[misc]
                added = [e["object"]["metadata"]["name"] for e in watch.events if e["type"] == "ADDED"]
                assert added == ["ss-0", "ss-1", "ss-2"] or policy == "Parallel"
                sick.clear()
                at.nodes.again()
                await at.settles(path, lambda o: o["status"].get("readyReplicas") == 3)
                await at.patch(path + "/scale", {"spec": {"replicas": 0}}, MERGE)
                for name in ("ss-2", "ss-1", "ss-0") if policy == "OrderedReady" else ():
                    await watch.until("DELETED", lambda o, name=name: o["metadata"]["name"] == name)  # type: ignore[misc]
                await at.settles(path, lambda o: o["status"].get("replicas", 0) == 0)
                gone = [e["object"]["metadata"]["name"] for e in watch.events if e["type"] == "DELETED"]
                assert policy == "Parallel" or gone == ["ss-2", "ss-1", "ss-0"]
    finally:
        at.nodes.behave = lambda pod: ("Running", True)


async def test_a_partition_holds_the_old_revision_back_also_for_deleted_pods(at: Site) -> None:
    namespace = await at.namespace()
    path, pods = place("statefulsets", namespace, "ss"), place("pods", namespace)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
    spec = {"selector": {"matchLabels": {"app": "part"}}, "template": template({"app": "part"}), "serviceName": "s"}
    await at.post(
        place("statefulsets", namespace),
        {"metadata": {"name": "ss"}, "spec": {**spec, "replicas": 3, "updateStrategy": strategy}},
    )
    first = await at.settles(path, lambda o: o["status"].get("readyReplicas") == 3)
    old = first["status"]["currentRevision"]
    assert old == first["status"]["updateRevision"]
    await at.patch(path, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}})
    changed = await at.settles(path, lambda o: o["status"]["updateRevision"] != old)
    new = changed["status"]["updateRevision"]

    def revisions(listing: Object) -> list[str]:
        return [p["metadata"]["labels"]["controller-revision-hash"] for p in listing["items"]]

    assert revisions(await at.read(pods)) == [old] * 3
    await at.patch(path, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}})
    await at.settles(path, lambda o: o["status"].get("updatedReplicas") == 1 and o["status"]["readyReplicas"] == 3)
    assert revisions(await at.read(pods)) == [old, old, new]
    uids = {p["metadata"]["uid"] for p in await at.items(pods)}
    for name in ("ss-0", "ss-2"):
        await at.delete(place("pods", namespace, name))
    await at.settles(
        pods, lambda o: len([p for p in o["items"] if p["metadata"]["uid"] in uids]) == 1 and len(o["items"]) == 3
    )
    assert revisions(await at.read(pods)) == [old, old, new]
    await at.patch(path, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    done = await at.settles(path, lambda o: o["status"]["currentRevision"] == new)
    assert revisions(await at.read(pods)) == [new] * 3 and done["status"]["currentReplicas"] == 3
    # Going back to what was is no third revision.
    await at.patch(path, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "httpd"}]}}}})
    await at.settles(path, lambda o: o["status"]["currentRevision"] == old and o["status"]["readyReplicas"] == 3)


async def test_a_deployment_scales_its_sets_in_proportion(at: Site) -> None:
    namespace = await at.namespace()
    path, sets = place("deployments", namespace, "d"), place("replicasets", namespace)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template({"app": "d"}), "strategy": rolling}
    at.nodes.behave = lambda pod: ("Pending", False) if pod.spec.containers[0].image == "404" else ("Running", True)

    def sizes(listing: Object) -> dict[str, int]:
        return {
            rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["spec"]["replicas"] for rs in listing["items"]
        }

    try:
        await at.post(place("deployments", namespace), {"metadata": {"name": "d"}, "spec": {**spec, "replicas": 10}})
        await at.settles(path, lambda o: o["status"].get("availableReplicas") == 10)
        await at.patch(path, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "404"}]}}}})
        await at.settles(sets, lambda o: sizes(o) == {"httpd": 8, "404": 5})
        await at.settles(path, lambda o: o["status"].get("unavailableReplicas") == 5)
        await at.change(path, lambda o: o["spec"].update(replicas=30))
        await at.settles(sets, lambda o: sizes(o) == {"httpd": 20, "404": 13})
    finally:
        at.nodes.behave = lambda pod: ("Running", True)


async def test_a_deployment_takes_over_a_set_and_goes_on_from_its_revision(at: Site) -> None:
    namespace = await at.namespace()
    key, labels = "deployment.kubernetes.io/revision", {"name": "sample"}
    meta = {"name": "rs", "labels": labels, "annotations": {key: "3546343826724305832"}}
    spec = {"selector": {"matchLabels": labels}, "template": template(labels), "replicas": 1}
    await at.post(place("replicasets", namespace), {"metadata": meta, "spec": spec})
    await at.settles(place("replicasets", namespace, "rs"), lambda o: o["status"].get("readyReplicas") == 1)
    rolled = {**spec, "template": template(labels, "two"), "revisionHistoryLimit": 0}
    await at.post(place("deployments", namespace), {"metadata": {"name": "d"}, "spec": rolled})
    done = await at.settles(place("deployments", namespace, "d"), lambda o: o["status"].get("availableReplicas") == 1)
    done = await at.settles(
        place("deployments", namespace, "d"), lambda o: o["metadata"]["annotations"].get(key) == "3546343826724305833"
    )
    assert done["status"]["observedGeneration"] == 1
    await at.settles(place("replicasets", namespace), lambda o: len(o["items"]) == 1)  # no history is kept
