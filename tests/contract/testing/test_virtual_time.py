"""Virtual time of a cluster for tests: effects of real controllers at their times, and the calls that move the clock."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Any

import pytest
import yaml

from kube.api import batch_v1, core_v1, meta_v1
from kube.client import Client
from kube.kubeconfig import Access
from kube.leases import LeaderElector
from kube.transport import HttpsTransport
from tests.contract.testing.test_cluster import deployment
from wherry.testing import AsyncCluster, Cluster, ClusterError, Exit, Run, Start, WaitError

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, time="virtual", start=START) as found:
        yield found


def job(*, restart_policy: str = "Never", **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "x"}]}
    return {"template": {"spec": pod}, **spec}


def cron(name: str, schedule: str) -> dict[str, Any]:
    spec = {"schedule": schedule, "jobTemplate": {"spec": job()}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def pod_names(cluster: Cluster, selector: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.list("pods", selector=selector)}


def test_cron_jobs_run_at_their_times_for_thirty_days(cluster: Cluster) -> None:
    starts: dict[str, list[datetime]] = {}

    def record(start: Start) -> Exit:
        starts.setdefault(start.pod.split("-")[0], []).append(cluster.now)
        return Exit(0, after=60)

    cluster.pods.script("*", [record])
    cluster.apply([cron("daily", "30 3 * * *"), cron("weekly", "0 12 * * 1")])
    cluster.advance(days=30)
    assert cluster.now == START + timedelta(days=30)
    first = START + timedelta(hours=3, minutes=30)
    assert [at.replace(microsecond=0) for at in starts["daily"]] == [first + timedelta(days=n) for n in range(30)]
    mondays = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (5, 12, 19, 26)]
    assert [at.replace(microsecond=0) for at in starts["weekly"]] == mondays
    assert len(cluster.list("jobs")) == 6  # three of each are kept


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(cluster: Cluster) -> None:
    spec = job(ttlSecondsAfterFinished=600)
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": spec})
    cluster.wait("job/once", "Complete")
    before = cluster.now
    cluster.advance(seconds=598)
    assert cluster.get("job/once")
    cluster.wait("job/once", "deleted")
    assert timedelta(seconds=600) <= cluster.now - before < timedelta(seconds=602)


def test_a_container_that_fails_is_restarted_later_each_time(cluster: Cluster) -> None:
    starts: list[datetime] = []

    def record(start: Start) -> Exit:
        starts.append(cluster.now)
        return Exit(1)

    cluster.pods.script("web-*", [record])
    cluster.apply(deployment("web", 1))
    cluster.advance(minutes=20)
    pauses = [round((after - before).total_seconds()) for before, after in itertools.pairwise(starts)]
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300][: len(pauses)] and len(pauses) >= 7
    (pod,) = cluster.list("pods", selector="app=web")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"


def test_pods_of_a_node_that_fails_are_replaced_after_five_minutes(cluster: Cluster) -> None:
    cluster.apply(deployment("web", 3))
    cluster.wait("deployment/web", "Available")
    cluster.advance(hours=1)
    lost = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.list("pods", selector="app=web")}
    cluster.node("node-1").fail()
    cluster.advance(seconds=49)
    assert ready(cluster, "node-1") == "True"
    cluster.advance(seconds=2)
    assert ready(cluster, "node-1") == "Unknown"
    cluster.advance(seconds=298)
    assert pod_names(cluster, "app=web") == set(lost)
    cluster.advance(seconds=15)
    pods = [pod for pod in cluster.list("pods", selector="app=web") if not pod["metadata"].get("deletionTimestamp")]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-2", "node-3"}
    cluster.wait("deployment/web", "status.readyReplicas=3")
    cluster.node("node-1").recover()
    cluster.wait("node/node-1", "Ready", timeout=60)
    cluster.advance(hours=1)
    assert [ready(cluster, f"node-{n}") for n in (1, 2, 3)] == ["True"] * 3


def ready(cluster: Cluster, node: str) -> str:
    conditions = cluster.get(f"node/{node}")["status"]["conditions"]
    return str(next(each["status"] for each in conditions if each["type"] == "Ready"))


def test_a_node_without_a_kubelet_is_not_ready_however_long_the_others_are_idle(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}})
    cluster.advance(seconds=70)
    assert (ready(cluster, "stranger"), ready(cluster, "node-1")) == ("Unknown", "True")


def test_nodes_have_fresh_leases_whenever_time_stands(cluster: Cluster) -> None:
    cluster.advance(days=3)
    for name in ("node-1", "node-2", "node-3"):
        lease = cluster.get(f"lease/{name}", namespace="kube-node-lease")
        assert cluster.now - datetime.fromisoformat(lease["spec"]["renewTime"]) <= timedelta(seconds=10)


def test_an_event_is_deleted_after_an_hour(cluster: Cluster) -> None:
    about = {"kind": "Node", "name": "node-1"}
    event = {"metadata": {"name": "noticed"}, "involvedObject": about, "reason": "Noticed"}
    cluster.apply({"apiVersion": "v1", "kind": "Event", **event})
    cluster.advance(minutes=59)
    assert cluster.get("event/noticed")
    cluster.advance(minutes=2)
    with pytest.raises(ClusterError, match="not found"):
        cluster.get("event/noticed")


def test_kubectl_sees_the_clusters_time_between_advances(cluster: Cluster) -> None:
    def kubectl(*arguments: str) -> str:
        command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    cluster.apply(deployment("web", 1))
    cluster.wait("deployment/web", "Available")
    cluster.advance(days=400)
    assert "400d" in kubectl("get", "deployment", "web")
    (pod,) = pod_names(cluster, "app=web")
    kubectl("delete", "pod", pod, "--timeout=30s")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert pod not in pod_names(cluster, "app=web")


def test_a_watch_of_a_client_outlasts_a_jump_of_days(cluster: Cluster) -> None:
    cluster.apply(deployment("web", 1))
    cluster.wait("deployment/web", "Available")
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "get", "pods", "--watch", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            assert next_object(watching.stdout)["kind"] == "Pod"
            cluster.advance(days=30)
            (pod,) = pod_names(cluster, "app=web")
            cluster.patch(f"pod/{pod}", {"metadata": {"labels": {"seen": "yes"}}})
            assert next_object(watching.stdout)["metadata"]["labels"]["seen"] == "yes"
        finally:
            watching.terminate()


def next_object(output: IO[str]) -> Any:
    lines = []
    for line in output:
        lines.append(line)
        if line == "}\n":
            return json.loads("".join(lines))
    raise AssertionError(f"kubectl ended after {lines}")


def test_a_client_that_waits_has_time_pass_meanwhile(cluster: Cluster) -> None:
    cluster.pods.script("slow-*", [Run(ready_after=30)])
    cluster.apply(deployment("slow", 1))
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "rollout", "status", "deployment/slow"]
    with cluster.time_passing():
        subprocess.run([*command, "--timeout=60s"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert cluster.now - START >= timedelta(seconds=30)


def test_an_operator_in_another_thread_reacts_before_time_moves_on() -> None:
    """It records the time of each Job; a Job lasts a second."""
    with Cluster(time="virtual", start=START, reaction=0.3) as cluster:
        cluster.pods.script("*", [Exit(0, after=1)])
        cluster.apply(cron("hourly", "0 * * * *"))
        with operator(cluster):
            cluster.advance(hours=6, seconds=1)  # a run begins 0.1 s after its time
        jobs = {name: datetime.fromisoformat(at) for name, at in recorded(cluster, "job").items()}
        answers = {name: datetime.fromisoformat(at) for name, at in recorded(cluster, "answer").items()}
    assert len(jobs) == 6 and answers.keys() == jobs.keys()
    assert all(answers[name] - jobs[name] <= timedelta(seconds=1) for name in jobs)


def recorded(cluster: Cluster, field: str) -> dict[str, str]:
    found = cluster.list("configmaps", selector="operator=yes")
    times = {"job": lambda obj: obj["data"]["created"], "answer": lambda obj: obj["metadata"]["creationTimestamp"]}
    return {obj["metadata"]["name"]: times[field](obj) for obj in found}


@contextlib.contextmanager
def operator(cluster: Cluster) -> Iterator[None]:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    decoded = [
        base64.b64decode(text)
        for text in (
            server["certificate-authority-data"],
            user["client-certificate-data"],
            user["client-key-data"],
        )
    ]
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def watch(client: Client) -> None:
        listed = await client.list(batch_v1.Job)
        started.set()
        async for event in client.watch(batch_v1.Job, resource_version=listed.resource_version):
            if event.type == "ADDED":
                meta = meta_v1.ObjectMeta(
                    name=event.object.metadata.name, namespace="default", labels={"operator": "yes"}
                )
                created = {"created": event.object.metadata.creation_timestamp or ""}
                await client.create(core_v1.ConfigMap(metadata=meta, data=created))

    async def run() -> None:
        transport = HttpsTransport(Access(server["server"], *decoded))
        watching = asyncio.create_task(watch(Client(transport)))
        await stop.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await transport.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def test_a_node_that_is_added_is_used(cluster: Cluster) -> None:
    cluster.add_node("big", labels={"size": "big"})
    body = deployment("web", 1)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"size": "big"}
    cluster.apply(body)
    cluster.wait("deployment/web", "Available")


def test_settle_ends_when_nothing_changes_any_more(cluster: Cluster) -> None:
    cluster.pods.script("web-*", [Run(ready_after=45)])
    cluster.apply(deployment("web", 3))
    cluster.settle()
    assert cluster.get("deployment/web")["status"]["readyReplicas"] == 3
    assert timedelta(seconds=105) <= cluster.now - START < timedelta(seconds=200)
    cluster.pods.script("bad-*", [Exit(1, after=30)])
    cluster.apply(deployment("bad", 1))
    with pytest.raises(ClusterError, match="objects still change after 100 s of virtual time"):
        cluster.settle(timeout=100)


def test_a_wait_that_can_never_be_true_ends_at_once_and_says_what_it_saw(cluster: Cluster) -> None:
    cluster.apply(deployment("web", 1))
    cluster.settle()
    began = time.monotonic()
    with pytest.raises(WaitError, match=r"web: not status\.replicas=7 within 3600 s; last seen: status\.replicas=1, "):
        cluster.wait("deployment/web", "status.replicas=7")
    assert time.monotonic() - began < 10


def test_a_condition_may_use_the_cluster(cluster: Cluster) -> None:
    cluster.apply(deployment("web", 1))
    cluster.wait("deployment/web", lambda obj: len(cluster.list("pods", selector="app=web")) == 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": "fast"}, "time is 'fast': it is real or virtual"),
        ({"start": START}, "start is the beginning of virtual time, a datetime with a time zone"),
        ({"time": "virtual", "start": datetime(2026, 1, 1)}, "start is the beginning of virtual time"),
    ],
)
def test_wrong_arguments_about_time_are_clear_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        Cluster(**arguments)


def test_time_cannot_go_back_and_real_time_cannot_be_moved(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="time cannot go back by 5 s"):
        cluster.advance(seconds=-5)
    with Cluster(nodes=0) as real, pytest.raises(ClusterError, match="the time of this cluster is real"):
        real.advance(days=1)


async def test_a_bound_token_expires() -> None:
    async with AsyncCluster(time="virtual", start=START) as cluster:
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = json.loads(await cluster.client.call("POST", path, body=json.dumps(body).encode()))["status"]["token"]
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}

        async def authenticated() -> bool:
            path, body = "/apis/authentication.k8s.io/v1/tokenreviews", json.dumps(review).encode()
            return bool(json.loads(await cluster.client.call("POST", path, body=body))["status"].get("authenticated"))

        await cluster.advance(minutes=59)
        assert await authenticated()
        await cluster.advance(minutes=3)  # one minute of leeway
        assert not await authenticated()


async def test_a_client_that_stops_renewing_its_lease_is_replaced_as_leader() -> None:
    async with AsyncCluster(time="virtual", start=START) as cluster:
        leaders: list[tuple[str, datetime]] = []

        async def lead(name: str) -> None:
            leaders.append((name, cluster.now))
            await asyncio.Event().wait()

        def candidate(name: str) -> LeaderElector:
            return LeaderElector(cluster.client, "operator", name, namespace="default", clock=cluster.clock)

        a, b = candidate("a"), candidate("b")
        first = asyncio.create_task(a.run(lambda: lead("a")))
        await cluster.advance(seconds=5)
        second = asyncio.create_task(b.run(lambda: lead("b")))
        await cluster.advance(hours=1)
        assert [name for name, _ in leaders] == ["a"]
        a._release = lambda: asyncio.sleep(0)  # type: ignore[method-assign] - as if it had been killed
        first.cancel()
        stopped = cluster.now
        await cluster.advance(minutes=1)
        assert [name for name, _ in leaders] == ["a", "b"]
        assert timedelta(seconds=10) < leaders[1][1] - stopped < timedelta(seconds=20)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


def test_the_same_advance_has_the_same_events_in_the_same_order() -> None:
    def run() -> list[tuple[Any, ...]]:
        with Cluster(nodes=2, time="virtual", start=START) as cluster:
            cluster.pods.script("web-*", [Exit(1, after=5), Run(unhealthy_after=100)])
            cluster.apply([deployment("web", 2), cron("often", "*/10 * * * *")])
            cluster.advance(minutes=15)
            cluster.node("node-2").fail()
            cluster.advance(minutes=30)
            found = [
                (event["firstTimestamp"], event["lastTimestamp"], event["reason"], event["involvedObject"]["kind"])
                for event in cluster.list("events")
            ]
            return sorted(found, key=str)

    assert run() == run()
