"""Jobs, DaemonSets, StatefulSets and CronJobs over HTTPS against a real API server with hollow nodes, through kubectl."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from control.controllers import manager
from kube.api import apps_v1, batch_v1, core_v1
from kube.client import Client
from kube.clock import format_time
from tests.support.clock import FakeClock
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running


class Cluster:
    def __init__(self, server: ApiUnderTest, client: Client, nodes: HollowNodes, clock: FakeClock) -> None:
        self.server, self.client, self.nodes, self.clock = server, client, nodes, clock

    async def kubectl(self, *arguments: str, **options: Any) -> str:
        return (await self.server.kubectl(*arguments, **options)).stdout

    async def apply(self, *objects: dict[str, Any]) -> None:
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.kubectl("apply", "-f", "-", input=json.dumps(listing))

    async def pods(self) -> list[core_v1.Pod]:
        return (await self.client.list(core_v1.Pod, "default")).items

    async def running(self) -> list[core_v1.Pod]:
        return [p for p in await self.pods() if p.status.phase == "Running" and not p.metadata.deletion_timestamp]

    async def messages(self, reason: str) -> list[str]:
        return [e.message or "" for e in (await self.client.list(core_v1.Event)).items if e.reason == reason]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three nodes; the controllers' clock is a fake one, so back-offs and schedules pass when told."""
    async with api_server(tmp_path, enable_controllers=False, enable_scheduler=False) as server:
        client, clock = server.client(), FakeClock()
        nodes = HollowNodes(client, silent=True)  # in the controllers' time
        config = manager.ControllerConfig()
        async with running(server.controllers(config, clock), server.scheduler(), nodes.run()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            for number in range(3):
                await nodes.register(f"n{number}")
            yield Cluster(server, client, nodes, clock)


def template(name: str, image: str = "one", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }


def job(name: str = "j", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        # The nodes are silent while the controllers' clock runs on; their taints are not what these tests look at.
        "spec": {"template": template(name, restartPolicy="Never", tolerations=[{"operator": "Exists"}]), **spec},
    }


async def test_a_job_runs_to_its_completions(cluster: Cluster) -> None:
    cluster.nodes.behave = lambda pod: ("Succeeded", False)
    await cluster.apply(job(completions=5, parallelism=2))
    await cluster.kubectl("wait", "--for=condition=complete", "job/j", "--timeout=60s")
    found = await cluster.client.get(batch_v1.Job, "j", "default")
    assert (found.status.succeeded, found.status.active, found.status.failed) == (5, None, None)
    assert found.status.completion_time and found.status.start_time
    pods = await cluster.pods()
    assert len(pods) == 5 and all(p.metadata.finalizers == [] for p in pods)
    assert all(p.metadata.labels["batch.kubernetes.io/job-name"] == "j" for p in pods)
    await eventually(lambda: cluster.messages("Completed"))
    assert await cluster.messages("Completed") == ["Job completed"]
    await cluster.kubectl("delete", "job", "j", "--timeout=60s")
    await eventually(lambda: _none_left(cluster))


async def _none_left(cluster: Cluster) -> bool:
    return not await cluster.pods()


async def test_a_job_that_keeps_failing_is_given_up(cluster: Cluster) -> None:
    cluster.nodes.behave = lambda pod: ("Failed", False)
    await cluster.apply(job(backoffLimit=1))

    async def failed() -> bool:
        await cluster.clock.advance(30)
        found = await cluster.client.get(batch_v1.Job, "j", "default")
        return any(c.type == "Failed" and c.status == "True" for c in found.status.conditions)

    await eventually(failed)
    found = await cluster.client.get(batch_v1.Job, "j", "default")
    reasons = {c.type: (c.reason, c.message) for c in found.status.conditions}
    assert reasons["Failed"] == ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert found.status.failed == 2 and len(await cluster.pods()) == 2


async def test_an_indexed_job_runs_each_index(cluster: Cluster) -> None:
    cluster.nodes.behave = lambda pod: ("Succeeded", False)
    await cluster.apply(job(completions=4, parallelism=4, completionMode="Indexed"))
    await cluster.kubectl("wait", "--for=condition=complete", "job/j", "--timeout=60s")
    found = await cluster.client.get(batch_v1.Job, "j", "default")
    assert found.status.completed_indexes == "0-3"
    assert {p.spec.hostname for p in await cluster.pods()} == {f"j-{n}" for n in range(4)}


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: Cluster) -> None:
    await cluster.apply(job(suspend=True))

    async def suspended() -> bool:
        found = await cluster.client.get(batch_v1.Job, "j", "default")
        return any(c.type == "Suspended" and c.status == "True" for c in found.status.conditions)

    await eventually(suspended)
    assert await cluster.pods() == []
    await cluster.kubectl("patch", "job", "j", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    await eventually(cluster.running)


async def test_a_finished_job_goes_with_its_pods_when_its_time_is_over(cluster: Cluster) -> None:
    cluster.nodes.behave = lambda pod: ("Succeeded", False)
    await cluster.apply(job(ttlSecondsAfterFinished=60))
    await cluster.kubectl("wait", "--for=condition=complete", "job/j", "--timeout=60s")
    await cluster.clock.advance(50)
    assert await cluster.client.get(batch_v1.Job, "j", "default")

    async def gone() -> bool:
        await cluster.clock.advance(5)
        return not (await cluster.client.list(batch_v1.Job)).items and not await cluster.pods()

    await eventually(gone)


async def test_a_cron_job_starts_a_job_at_its_moment(cluster: Cluster) -> None:
    cluster.nodes.behave = lambda pod: ("Succeeded", False)
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job()["spec"]}}
    now = cluster.clock.now()
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}
    await cluster.apply(cron)
    # The server's clock is the real one and the controllers' is not: count from the controllers' now.
    status = {"status": {"lastScheduleTime": format_time(now)}}
    await cluster.client.patch(batch_v1.CronJob, "c", "default", status, subresource="status")

    async def started() -> bool:
        await cluster.clock.advance(20)
        return bool((await cluster.client.list(batch_v1.Job)).items)

    await eventually(started)
    moment = now + timedelta(minutes=5)
    name = f"c-{int(moment.timestamp()) // 60}"

    async def succeeded() -> bool:
        await cluster.clock.advance(0.02)  # for back-offs after conflicts
        live = await cluster.client.get(batch_v1.CronJob, "c", "default")
        return live.status.last_successful_time is not None and live.status.last_schedule_time == format_time(moment)

    await eventually(succeeded)
    assert (await cluster.client.get(batch_v1.Job, name, "default")).status.succeeded == 1
    await cluster.kubectl("delete", "cronjob", "c", "--timeout=60s")
    await eventually(lambda: _none_left(cluster))


def daemon(image: str = "one") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template("d", image)},
    }


async def test_a_daemon_set_runs_on_every_node_and_follows_them(cluster: Cluster) -> None:
    await cluster.apply(daemon())
    await cluster.kubectl("rollout", "status", "ds/d", "--timeout=60s")
    assert {p.spec.node_name for p in await cluster.running()} == {"n0", "n1", "n2"}
    await cluster.nodes.register("n3")

    async def covers(*names: str) -> bool:
        return {p.spec.node_name for p in await cluster.running()} == set(names)

    await eventually(lambda: covers("n0", "n1", "n2", "n3"))
    await cluster.kubectl("taint", "node", "n3", "x=y:NoExecute")
    await eventually(lambda: covers("n0", "n1", "n2"))

    async def shown() -> bool:
        table = (await cluster.kubectl("get", "ds", "d", "--no-headers")).split()
        return table[:6] == ["d", "3", "3", "3", "3", "3"]

    await eventually(shown)


async def test_a_daemon_set_is_updated_and_rolled_back(cluster: Cluster) -> None:
    await cluster.apply(daemon())
    await cluster.kubectl("rollout", "status", "ds/d", "--timeout=60s")
    await cluster.kubectl("set", "image", "ds/d", "c=two")
    await cluster.kubectl("rollout", "status", "ds/d", "--timeout=60s")
    assert {p.spec.containers[0].image for p in await cluster.running()} == {"two"}
    history = await cluster.kubectl("rollout", "history", "ds/d")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    await cluster.kubectl("rollout", "undo", "ds/d")
    await cluster.kubectl("rollout", "status", "ds/d", "--timeout=60s")
    await eventually(lambda: _images(cluster, {"one"}))
    revisions = (await cluster.client.list(apps_v1.ControllerRevision, "default")).items
    assert sorted(r.revision for r in revisions) == [2, 3]


async def _images(cluster: Cluster, wanted: set[str]) -> bool:
    return {p.spec.containers[0].image for p in await cluster.running()} == wanted


def stateful(image: str = "one", replicas: int = 3) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", image),
        },
    }


async def test_a_stateful_set_comes_up_in_order_and_goes_down_from_the_top(cluster: Cluster) -> None:
    seen: list[str] = []

    def observe(change: Any) -> None:
        if change.type in ("ADDED", "DELETED"):
            seen.append(f"{change.type[0]}{(change.new.metadata.name or '')[-1]}")

    cluster.nodes.pods.subscribe(observe)
    await cluster.apply(stateful())
    await cluster.kubectl("rollout", "status", "sts/db", "--timeout=60s")
    await cluster.kubectl("scale", "sts/db", "--replicas=1")

    async def one_left() -> bool:
        return [p.metadata.name for p in await cluster.pods()] == ["db-0"]

    await eventually(one_left)
    await eventually(lambda: len(seen) >= 5)  # this watch may be behind the list
    assert seen == ["A0", "A1", "A2", "D2", "D1"]

    async def is_reported() -> bool:
        return "create Pod db-0 in StatefulSet db successful" in await cluster.messages("SuccessfulCreate")

    await eventually(is_reported)


async def test_a_stateful_set_is_updated_from_the_top_and_keeps_its_names(cluster: Cluster) -> None:
    await cluster.apply(stateful())
    await cluster.kubectl("rollout", "status", "sts/db", "--timeout=60s")
    before = {p.metadata.name: p.metadata.uid for p in await cluster.pods()}
    seen: list[str] = []

    def observe(change: Any) -> None:
        if change.type == "DELETED":
            seen.append(change.new.metadata.name)

    cluster.nodes.pods.subscribe(observe)
    await cluster.kubectl("set", "image", "sts/db", "c=two")
    await cluster.kubectl("rollout", "status", "sts/db", "--timeout=60s")
    after = {p.metadata.name: p.metadata.uid for p in await cluster.pods()}
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    await eventually(lambda: len(seen) >= 3)  # this watch may be behind
    assert seen == ["db-2", "db-1", "db-0"]
    found = await cluster.client.get(apps_v1.StatefulSet, "db", "default")
    assert found.status.current_revision == found.status.update_revision
    await cluster.kubectl("rollout", "undo", "sts/db")
    await cluster.kubectl("rollout", "status", "sts/db", "--timeout=60s")
    await eventually(lambda: _images(cluster, {"one"}))


async def test_a_stateful_set_makes_its_claims_and_keeps_them(cluster: Cluster) -> None:
    desired = stateful(replicas=1)
    desired["spec"]["volumeClaimTemplates"] = [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    await cluster.apply(desired)
    claim = await eventually(lambda: cluster.client.get(core_v1.PersistentVolumeClaim, "data-db-0", "default"))
    assert claim.metadata.labels == {"app": "db"} and claim.metadata.owner_references == []
    await cluster.kubectl("delete", "sts/db", "--timeout=60s")
    await eventually(lambda: _none_left(cluster))
    assert (
        await cluster.client.get(core_v1.PersistentVolumeClaim, "data-db-0", "default")
    ).metadata.uid == claim.metadata.uid


async def test_a_replication_controller_keeps_its_pods(cluster: Cluster) -> None:
    spec = {"replicas": 2, "selector": {"app": "rc"}, "template": template("rc")}
    await cluster.apply({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}, "spec": spec})

    async def counted(number: int) -> bool:
        status = (await cluster.client.get(core_v1.ReplicationController, "rc", "default")).status
        return (status.replicas, status.ready_replicas or 0) == (number, number)

    await eventually(lambda: counted(2))
    await cluster.kubectl("scale", "rc/rc", "--replicas=1")
    await eventually(lambda: counted(1))
    assert len(await cluster.running()) == 1
    await cluster.kubectl("delete", "rc/rc", "--timeout=60s")
    await eventually(lambda: _none_left(cluster))


async def test_storage_in_use_stays_until_its_last_user_is_gone(cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    unused = {**claim, "metadata": {"name": "unused", "namespace": "default"}}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/srv"},
            "storageClassName": "other",  # so that neither claim gets it
        },
    }
    kind = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": {"name": "fast"},
        "driverName": "x.example",
        "parameters": {"iops": "1"},
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {**template("user", volumes=volumes)["spec"], "nodeName": "n0", "terminationGracePeriodSeconds": 0},
    }
    await cluster.apply(claim, unused, volume, kind, user)
    await cluster.kubectl("delete", "pvc/unused", "pv/disk", "volumeattributesclass/fast", "--timeout=60s")
    await cluster.kubectl("delete", "pvc/data", "--wait=false")
    await cluster.kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "pvc/data", "--timeout=60s")
    # The one without users went after it was asked for, so this one would be gone by now, too.
    assert (await cluster.client.get(core_v1.PersistentVolumeClaim, "data", "default")).metadata.finalizers
    await cluster.kubectl("delete", "pod/user", "--timeout=60s")
    await cluster.kubectl("wait", "--for=delete", "pvc/data", "--timeout=60s")
