"""Controllers over HTTPS against a real API server with hollow nodes, looked at through kubectl and the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api import apps_v1, core_v1, discovery_v1, meta_v1, policy_v1
from kube.errors import StatusError
from tests.support.hollow import eventually
from tests.support.hollow_cluster import Cluster, deployment, hollow_cluster, running_pods, service


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with hollow_cluster(tmp_path) as made:
        yield made


async def test_a_deployment_becomes_bound_pods_and_endpoints(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(service())
    await cluster.client.create(deployment())
    assert "successfully rolled out" in await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")

    async def endpoints() -> bool:
        slices = (await cluster.client.list(discovery_v1.EndpointSlice, "default")).items
        ready = [e for s in slices for e in s.endpoints if s.metadata.labels["kubernetes.io/service-name"] == "web"]
        return len(ready) == 3 and all(e.conditions and e.conditions.ready for e in ready)

    await eventually(endpoints)
    pods = await cluster.pods()
    (rs,) = (await cluster.client.list(apps_v1.ReplicaSet, "default")).items
    assert {pod.spec.node_name for pod in pods} == {"n1"}
    assert {pod.metadata.generate_name for pod in pods} == {f"{rs.metadata.name}-"}
    assert rs.metadata.labels["pod-template-hash"] == (rs.metadata.name or "").removeprefix("web-")

    async def reported(component: str, reason: str, *messages: str) -> bool:
        events = [(e.source.component, e.message) for e in await cluster.events(reason) if e.source]
        return sorted(events) == sorted((component, message) for message in messages)

    placed = [f"Successfully assigned default/{pod.metadata.name} to n1" for pod in pods]
    await eventually(lambda: reported("default-scheduler", "Scheduled", *placed))
    scaled = f"Scaled up replica set {rs.metadata.name} from 0 to 3"
    await eventually(lambda: reported("deployment-controller", "ScalingReplicaSet", scaled))
    created = [f"Created pod: {pod.metadata.name}" for pod in pods]
    await eventually(lambda: reported("replicaset-controller", "SuccessfulCreate", *created))

    async def legacy() -> bool:
        subsets = (await cluster.client.get(core_v1.Endpoints, "web", "default")).subsets
        return [len(subset.addresses) for subset in subsets] == [3]

    await eventually(legacy)


async def test_endpoints_written_by_hand_are_mirrored_into_slices(cluster: Cluster) -> None:
    alone = service("manual")
    alone.spec.selector = {}
    await cluster.client.create(alone)
    subset = core_v1.EndpointSubset(
        addresses=[core_v1.EndpointAddress(ip="192.0.2.1")], ports=[core_v1.EndpointPort(port=5432)]
    )
    metadata = meta_v1.ObjectMeta(name="manual", namespace="default")
    await cluster.client.create(core_v1.Endpoints(metadata=metadata, subsets=[subset]))

    async def mirrored() -> list[list[str]]:
        slices = (await cluster.client.list(discovery_v1.EndpointSlice, "default")).items
        manager_ = "endpointslicemirroring-controller.k8s.io"
        mine = [s for s in slices if s.metadata.labels.get("endpointslice.kubernetes.io/managed-by") == manager_]
        assert all(s.metadata.labels["kubernetes.io/service-name"] == "manual" for s in mine)
        return [sorted(ip for e in s.endpoints for ip in e.addresses) for s in mine]

    async def is_(wanted: list[list[str]]) -> bool:
        return await mirrored() == wanted

    await eventually(lambda: is_([["192.0.2.1"]]))
    more = {"subsets": [{"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}], "ports": [{"port": 5432}]}]}
    await cluster.client.patch(core_v1.Endpoints, "manual", "default", more)
    await eventually(lambda: is_([["192.0.2.1", "192.0.2.2"]]))
    await cluster.client.delete(core_v1.Endpoints, "manual", "default")
    await eventually(lambda: is_([]))


async def test_a_service_that_loses_its_selector_keeps_the_endpoints_it_had(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(service())
    await cluster.client.create(deployment(replicas=2))

    async def addresses() -> int:
        slices = (await cluster.client.list(discovery_v1.EndpointSlice, "default")).items
        return sum(len(s.endpoints) for s in slices if s.metadata.labels["kubernetes.io/service-name"] == "web")

    async def are(wanted: int) -> bool:
        return await addresses() == wanted

    await eventually(lambda: are(2))
    await cluster.client.patch(core_v1.Service, "web", "default", {"spec": {"selector": None}})
    # A Service that is made after it, and has its slices, shows that the controller has been there.
    other = service("other")
    await cluster.client.create(other)

    async def reached() -> bool:
        slices = (await cluster.client.list(discovery_v1.EndpointSlice, "default")).items
        return any(s.metadata.labels["kubernetes.io/service-name"] == "other" for s in slices)

    await eventually(reached)
    assert await addresses() == 2
    await cluster.kubectl("scale", "deploy/web", "--replicas=3")
    await cluster.client.patch(core_v1.Service, "web", "default", {"spec": {"selector": {"app": "web"}}})
    await eventually(lambda: are(3))


async def test_a_deleted_pod_is_replaced(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment(replicas=2))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    victim = (await cluster.pods())[0].metadata.name or ""
    await cluster.client.delete(core_v1.Pod, victim, "default")

    async def replaced() -> bool:
        names = [p.metadata.name for p in await cluster.pods() if p.status.phase == "Running"]
        return len(names) == 2 and victim not in names

    await eventually(replaced)


async def test_rollout_history_and_undo(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment())
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    first = {p.metadata.labels["pod-template-hash"] for p in await cluster.pods()}
    await cluster.kubectl("set", "image", "deploy/web", "c=nginx:2")
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    history = await cluster.kubectl("rollout", "history", "deploy/web")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    await cluster.kubectl("rollout", "undo", "deploy/web")
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")

    async def back() -> bool:
        pods = [p for p in await cluster.pods() if p.metadata.deletion_timestamp is None]
        return len(pods) == 3 and {p.metadata.labels["pod-template-hash"] for p in pods} == first

    await eventually(back)
    found = await cluster.client.get(apps_v1.Deployment, "web", "default")
    assert found.metadata.annotations["deployment.kubernetes.io/revision"] == "3"
    assert found.status.observed_generation == found.metadata.generation
    reasons = {c.type: (c.status, c.reason) for c in found.status.conditions}
    assert reasons["Progressing"] == ("True", "NewReplicaSetAvailable")
    assert reasons["Available"] == ("True", "MinimumReplicasAvailable")


async def test_a_rolling_update_never_goes_below_its_bounds(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    rolling = apps_v1.RollingUpdateDeployment(max_surge=1, max_unavailable=0)
    strategy = apps_v1.DeploymentStrategy(type="RollingUpdate", rolling_update=rolling)
    await cluster.client.create(deployment(replicas=4, strategy=strategy))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    counts: list[tuple[int, int]] = []

    def observe(change: object) -> None:
        alive = [p for p in cluster.nodes.pods.list() if p.metadata.deletion_timestamp is None]
        ready = sum(1 for p in alive if any(c.type == "Ready" and c.status == "True" for c in p.status.conditions))
        counts.append((len(alive), ready))

    cluster.nodes.pods.subscribe(observe)
    counts.clear()
    await cluster.kubectl("set", "image", "deploy/web", "c=nginx:2")
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    assert counts and max(total for total, _ in counts) <= 5 and min(ready for _, ready in counts) >= 4


async def test_recreate_stops_all_before_it_starts_any(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment(strategy=apps_v1.DeploymentStrategy(type="Recreate")))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    mixed: list[set[str]] = []

    def observe(change: object) -> None:
        mixed.append({p.metadata.labels["pod-template-hash"] for p in cluster.nodes.pods.list()})

    cluster.nodes.pods.subscribe(observe)
    await cluster.kubectl("set", "image", "deploy/web", "c=nginx:2")
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    assert all(len(hashes) <= 1 for hashes in mixed)


async def test_pause_holds_a_rollout_and_resume_lets_it_go(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment())
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    await cluster.kubectl("rollout", "pause", "deploy/web")
    await cluster.kubectl("set", "image", "deploy/web", "c=nginx:2")
    await cluster.kubectl("scale", "deploy/web", "--replicas=5")
    await eventually(lambda: running_pods(cluster, 5))
    assert {p.spec.containers[0].image for p in await cluster.pods()} == {"nginx"}
    await cluster.kubectl("rollout", "resume", "deploy/web")
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    assert {p.spec.containers[0].image for p in await cluster.pods() if p.metadata.deletion_timestamp is None} == {
        "nginx:2"
    }


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_deleting_a_deployment_deletes_dependents_by_propagation_policy(cluster: Cluster, cascade: str) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment())
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    await cluster.kubectl("delete", "deploy/web", f"--cascade={cascade}", "--timeout=60s")
    if cascade != "orphan":
        await eventually(lambda: running_pods(cluster, 0))
        assert not (await cluster.client.list(apps_v1.ReplicaSet, "default")).items
        return
    (rs,) = (await cluster.client.list(apps_v1.ReplicaSet, "default")).items
    assert rs.metadata.owner_references == [] and await running_pods(cluster, 3)


async def test_an_adopted_pod_is_one_of_the_replicas_and_a_relabelled_one_is_not(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment(replicas=2))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    _, freed = await cluster.pods()
    await cluster.kubectl("label", "pod", freed.metadata.name or "", "app=other", "--overwrite")

    async def released() -> bool:
        pod = await cluster.client.get(core_v1.Pod, freed.metadata.name or "", "default")
        mine = [p for p in await cluster.pods("app=web") if p.status.phase == "Running"]
        return pod.metadata.owner_references == [] and len(mine) == 2

    await eventually(released)


async def test_an_owner_in_another_namespace_is_ignored_and_an_event_reports_it(cluster: Cluster) -> None:
    there = await cluster.client.create(core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="o", namespace="default")))
    refer = meta_v1.OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid=there.metadata.uid or "")
    stray = meta_v1.ObjectMeta(name="stray", namespace="kube-system", owner_references=[refer])
    await cluster.client.create(core_v1.ConfigMap(metadata=stray))

    async def gone() -> bool:
        found = await cluster.client.list(core_v1.ConfigMap, "kube-system")
        return all(each.metadata.name != "stray" for each in found.items)

    await eventually(gone)
    (event,) = await eventually(lambda: cluster.events("OwnerRefInvalidNamespace"))
    reported = f"[v1/ConfigMap, namespace: kube-system, name: o, uid: {refer.uid}]"
    assert event.message == f'ownerRef {reported} does not exist in namespace "kube-system"'
    assert (event.metadata.namespace, event.involved_object.name, event.type) == ("kube-system", "stray", "Warning")


async def test_deleting_a_namespace_deletes_all_that_is_in_it(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.kubectl("create", "namespace", "gone")
    await eventually(lambda: cluster.client.get(core_v1.ServiceAccount, "default", "gone"))
    root = await eventually(lambda: cluster.client.get(core_v1.ConfigMap, "kube-root-ca.crt", "gone"))
    assert "BEGIN CERTIFICATE" in root.data["ca.crt"]
    for found in (deployment(), service()):
        found.metadata.namespace = "gone"
        await cluster.client.create(found)
    await cluster.kubectl("-n", "gone", "rollout", "status", "deploy/web", "--timeout=60s")
    await cluster.kubectl("delete", "namespace", "gone", "--timeout=60s")
    for kind in (core_v1.Pod, apps_v1.ReplicaSet, core_v1.Service, core_v1.ConfigMap):
        assert not (await cluster.client.list(kind, "gone")).items


async def test_a_finalizer_blocks_a_namespaces_deletion_and_its_conditions_report_it(cluster: Cluster) -> None:
    await cluster.kubectl("create", "namespace", "held")
    held = core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="x", namespace="held", finalizers=["example.com/hold"]))
    await cluster.client.create(held)
    await cluster.client.delete(core_v1.Namespace, "held")

    async def conditions() -> dict[str, tuple[str, str]]:
        namespace = await cluster.client.get(core_v1.Namespace, "held")
        return {c.type: (c.status, c.message or "") for c in namespace.status.conditions}

    wanted = {
        "NamespaceContentRemaining": (
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
        ),
    }

    async def reported() -> bool:
        return wanted.items() <= (await conditions()).items()

    await eventually(reported)
    await cluster.client.patch(core_v1.ConfigMap, "x", "held", {"metadata": {"finalizers": None}})
    await cluster.kubectl("wait", "--for=delete", "namespace/held", "--timeout=60s")


async def test_a_budget_counts_its_pods_and_guards_them_from_eviction(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    await cluster.client.create(deployment(replicas=2))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    budget = policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default"),
        spec=policy_v1.PodDisruptionBudgetSpec(
            max_unavailable=0, selector=meta_v1.LabelSelector(match_labels={"app": "web"})
        ),
    )
    await cluster.client.create(budget)

    async def counted() -> bool:
        status = (await cluster.client.get(policy_v1.PodDisruptionBudget, "web", "default")).status
        return (status.expected_pods, status.desired_healthy, status.current_healthy) == (2, 2, 2)

    await eventually(counted)
    name = (await cluster.pods())[0].metadata.name or ""
    eviction = policy_v1.Eviction(
        api_version="policy/v1", kind="Eviction", metadata=meta_v1.ObjectMeta(name=name, namespace="default")
    )
    with pytest.raises(StatusError, match="disruption budget"):
        await cluster.client.post(core_v1.Pod, name, "default", "eviction", eviction)


async def test_a_quota_shows_what_is_used_and_forgets_what_is_gone(cluster: Cluster) -> None:
    await cluster.nodes.register("n1")
    quota = core_v1.ResourceQuota(
        metadata=meta_v1.ObjectMeta(name="q", namespace="default"),
        spec=core_v1.ResourceQuotaSpec(hard={"pods": "10", "requests.cpu": "2", "count/deployments.apps": "5"}),
    )
    await cluster.client.create(quota)
    await eventually(lambda: _used(cluster, {"pods": "0", "requests.cpu": "0", "count/deployments.apps": "0"}))
    await cluster.client.create(deployment(replicas=2))
    await cluster.kubectl("rollout", "status", "deploy/web", "--timeout=60s")
    await cluster.kubectl("delete", "deploy/web", "--timeout=60s")
    await eventually(lambda: _used(cluster, {"pods": "0", "requests.cpu": "0", "count/deployments.apps": "0"}))


async def _used(cluster: Cluster, wanted: dict[str, str]) -> bool:
    return (await cluster.client.get(core_v1.ResourceQuota, "q", "default")).status.used == wanted


async def test_the_aggregating_roles_hold_what_labelled_roles_allow(cluster: Cluster) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "see-widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}],
    }
    await cluster.kubectl("create", "-f", "-", input=json.dumps(role))

    async def aggregated() -> bool:
        view = json.loads(await cluster.kubectl("get", "clusterrole", "view", "-o", "json"))
        return any("widgets" in rule.get("resources", ()) for rule in view["rules"])

    await eventually(aggregated)
