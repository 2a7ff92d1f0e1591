"""Timers and counts of the smaller controllers: certificates, tokens, TTL, budgets, quotas, roles, volumes."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from control.admission import quota as quotas
from control.controllers import disruption, namespace, quota_names, role_aggregation, token_cleaner
from control.controllers import ttl_after_finished as ttl
from control.controllers.certificates import cleaner
from control.controllers.persistent_volumes.matching import find_match
from control.controllers.quota_totals import Totals
from control.controllers.step_counter import STEPS_PER_ITERATION
from control.interfaces import compiled_selectors
from kube.api import batch_v1, certificates_v1, core_v1, meta_v1, policy_v1, rbac_v1
from kube.client import Response
from kube.clock import format_time
from kube.errors import StatusError
from kube.volume_binding import mismatch
from tests.support.clock import settle
from tests.support.memory_api import MemoryAPI

from .makers import NOW, ago, pod


def csr(age: float, condition: str = "", decided: float = 0, certificate: str | None = None):
    conditions = [
        certificates_v1.CertificateSigningRequestCondition(type=t, status="True", last_update_time=ago(decided))
        for t in ([condition] if condition else [])
    ]
    return certificates_v1.CertificateSigningRequest(
        metadata=meta_v1.ObjectMeta(name="c", creation_timestamp=ago(age)),
        status=certificates_v1.CertificateSigningRequestStatus(conditions=conditions, certificate=certificate),
    )


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        (csr(0), 86400),
        (csr(90000), -3600),
        (csr(4000, "Denied", 3500), 100),
        (csr(4000, "Failed", 3700), -100),
        (csr(4000, "Approved", 3700), 82400),  # approved, and not signed yet
        (csr(4000, "Approved", 3500, "cert"), 100),
    ],
)
def test_requests_are_kept_for_an_hour_once_decided_and_for_a_day_before(request_, left) -> None:
    assert cleaner.expires_in(request_, NOW) == left


def test_tokens_expire_at_their_expiration_and_invalid_ones_immediately() -> None:
    def secret(text: str) -> core_v1.Secret:
        return core_v1.Secret(data={"expiration": base64.b64encode(text.encode()).decode()} if text else {})

    assert token_cleaner.expires_in(secret(format_time(NOW + timedelta(seconds=60))), NOW) == 60
    assert token_cleaner.expires_in(secret("soon"), NOW) == 0
    assert token_cleaner.expires_in(secret(""), NOW) is None


def test_a_job_goes_its_ttl_after_its_end() -> None:
    done = batch_v1.JobCondition(type="Complete", status="True", last_transition_time=ago(40))
    job = batch_v1.Job(spec=batch_v1.JobSpec(ttl_seconds_after_finished=60))
    assert ttl.expires_in(job, NOW) is None
    job.status.conditions = [done]
    assert ttl.expires_in(job, NOW) == 20
    job.spec.ttl_seconds_after_finished = None
    assert ttl.expires_in(job, NOW) is None


def budget(**spec) -> policy_v1.PodDisruptionBudget:
    return policy_v1.PodDisruptionBudget(
        metadata=meta_v1.ObjectMeta(name="b", namespace="default", generation=3),
        spec=policy_v1.PodDisruptionBudgetSpec(**spec),
    )


@pytest.mark.parametrize(
    ("spec", "scale", "ready", "expected"),
    [
        ({"min_available": 2}, 3, 3, (3, 2, 3, 1)),
        ({"min_available": 2}, 3, 1, (3, 2, 1, 0)),
        ({"min_available": "50%"}, 5, 3, (5, 3, 3, 0)),
        ({"max_unavailable": 1}, 5, 3, (5, 4, 3, 0)),
        ({"max_unavailable": 1}, 3, 3, (3, 2, 3, 1)),
        ({"max_unavailable": "34%"}, 3, 3, (3, 1, 3, 2)),
        ({"max_unavailable": 0}, 3, 3, (3, 3, 3, 0)),
    ],
)
def test_a_budget_counts_what_there_is_and_what_must_be(spec, scale, ready, expected) -> None:
    pods = [pod(f"p{n}", ready=n < ready) for n in range(3)]
    found = disruption.status_of(budget(**spec), pods, lambda p: ("owner", scale), NOW)
    assert (found.expected_pods, found.desired_healthy, found.current_healthy, found.disruptions_allowed) == expected
    condition = found.conditions[0]
    assert (condition.status, condition.reason) == (
        ("True", "SufficientPods") if expected[3] else ("False", "InsufficientPods")
    )
    assert found.observed_generation == 3


def test_a_budget_that_cannot_be_reckoned_lets_nobody_go() -> None:
    owned = pod("p0")
    owned.metadata.owner_references = [meta_v1.OwnerReference(kind="Job", name="j", uid="u", controller=True)]
    desired = budget(max_unavailable=1)
    desired.status.disruptions_allowed = 2
    with pytest.raises(disruption.CountUnknown, match='found no controllers for pod "p0"'):
        disruption.status_of(desired, [owned], lambda p: None, NOW)
    found = disruption.failed_safe(desired, "why", NOW)
    condition = found.conditions[0]
    assert (found.disruptions_allowed, condition.status, condition.reason) == (0, "False", "SyncFailed")
    desired = budget(min_available=1)
    assert disruption.status_of(desired, [owned, pod("p1")], lambda p: None, NOW).disruptions_allowed == 1


@pytest.mark.parametrize(
    ("spec", "reported"),
    [({"max_unavailable": 1}, True), ({"min_available": "50%"}, True), ({"min_available": 1}, False)],
)
def test_a_percentage_budget_reports_pods_without_a_controller_with_upstreams_message(spec, reported) -> None:
    selector = meta_v1.LabelSelector(
        match_labels={"b": "2", "a": "1"},
        match_expressions=[meta_v1.LabelSelectorRequirement(key="c", operator="In", values=["x", "y"])],
    )
    text = disruption.unmanaged(budget(selector=selector, **spec), [pod("p0")])
    assert bool(text) == reported
    if reported:
        assert text == (
            "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},"
            "MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[x y],},},}) "
            "were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result "
            'in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an '
            "integer value."
        )
    owned = pod("p1")
    owned.metadata.owner_references = [meta_v1.OwnerReference(kind="Job", name="j", uid="u", controller=True)]
    assert not disruption.unmanaged(budget(**spec), [owned])


def test_an_evicted_pod_that_is_not_deleted_in_time_is_reported() -> None:
    desired = budget(min_available=1)
    desired.status.disrupted_pods = {"p0": ago(60), "p1": ago(121), "p2": ago(121), "gone": ago(121)}
    pods = [pod("p0"), pod("p1"), pod("p2", deleting=True)]
    status = disruption.status_of(desired, pods, lambda p: None, NOW)
    assert [found.metadata.name for found in disruption.stayed(desired, pods, status)] == ["p1"]


def test_an_evicted_pod_counts_as_gone_for_two_minutes_unless_it_goes() -> None:
    desired = budget(min_available=1)
    desired.status.disrupted_pods = {"p0": ago(60), "p1": ago(121), "p2": ago(60), "gone": ago(1)}
    pods = [pod("p0"), pod("p1"), pod("p2", deleting=True)]
    found = disruption.status_of(desired, pods, lambda p: None, NOW)
    assert found.disrupted_pods == {"p0": ago(60)} and found.current_healthy == 1


def requesting(name: str, cpu: str, **more) -> core_v1.Pod:
    resources = core_v1.ResourceRequirements(requests={"cpu": cpu}, limits={"cpu": cpu, "memory": "1Gi"})
    return pod(name, containers=[core_v1.Container(name="c", resources=resources)], **more)


def count(target: str, *objects: Any, quota: core_v1.ResourceQuota | None = None) -> quotas.Usage:
    shape = msgspec.to_builtins(quota or core_v1.ResourceQuota())
    totals = Totals([shape])
    for obj in objects:
        totals.add(target, msgspec.to_builtins(obj))
    return totals.of(shape)


def test_quotas_count_requests_and_limits_of_pods_that_have_not_finished() -> None:
    used = count("pods", requesting("a", "500m"), requesting("b", "1"), requesting("c", "1", phase="Succeeded"))
    assert used["pods"] == 2 and used["count/pods"] == 3
    assert used["requests.cpu"] == used["cpu"] == used["limits.cpu"] == Decimal("1.5")
    assert used["limits.memory"] == 2 * 1024**3


@pytest.mark.parametrize(
    ("scope", "which"),
    [
        ("BestEffort", {"free"}),
        ("NotBestEffort", {"asks", "ends"}),
        ("Terminating", {"ends"}),
        ("NotTerminating", {"free", "asks"}),
    ],
)
def test_scopes_choose_the_pods_that_a_quota_speaks_of(scope, which) -> None:
    quota = core_v1.ResourceQuota(spec=core_v1.ResourceQuotaSpec(scopes=[scope]))
    pods = [pod("free"), requesting("asks", "1"), requesting("ends", "1", active_deadline_seconds=5)]
    counted = {
        p.metadata.name for p in pods if quotas.matches(msgspec.to_builtins(quota), "pods", msgspec.to_builtins(p))
    }
    assert counted == which
    assert count("pods", *pods, quota=quota)["pods"] == len(which)
    assert count("services", core_v1.Service(), quota=quota) == {}


def test_services_count_with_their_node_ports() -> None:
    ports = [core_v1.ServicePort(port=80, node_port=30080), core_v1.ServicePort(port=81)]
    services = [
        core_v1.Service(spec=core_v1.ServiceSpec(type="NodePort", ports=ports)),
        core_v1.Service(spec=core_v1.ServiceSpec(type="ClusterIP", ports=ports)),
        core_v1.Service(spec=core_v1.ServiceSpec(type="LoadBalancer", ports=ports)),
    ]
    used = count("services", *services)
    assert (used["services"], used["services.nodeports"], used["services.loadbalancers"]) == (3, 4, 1)
    services[2].spec.allocate_load_balancer_node_ports = False
    assert count("services", *services)["services.nodeports"] == 3


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("pods", "pods"),
        ("limits.cpu", "pods"),
        ("requests.nvidia.com/gpu", "pods"),
        ("hugepages-2Mi", "pods"),
        ("requests.storage", "persistentvolumeclaims"),
        ("gold.storageclass.storage.k8s.io/requests.storage", "persistentvolumeclaims"),
        ("services.nodeports", "services"),
        ("gpu.deviceclass.resource.k8s.io/devices", "resourceclaims.resource.k8s.io"),
        ("count/resourceclaims.resource.k8s.io", "resourceclaims.resource.k8s.io"),
        ("count/deployments.apps", ""),
        ("configmaps", ""),
    ],
)
def test_what_uses_a_resource(name: str, target: str) -> None:
    assert quota_names.target_of(name) == target


async def test_an_aggregating_role_has_each_rule_once_by_role_name() -> None:
    def role(name: str, *verbs: str, **labels: str) -> rbac_v1.ClusterRole:
        rules = [rbac_v1.PolicyRule(verbs=[verb], resources=["x"]) for verb in verbs]
        return rbac_v1.ClusterRole(metadata=meta_v1.ObjectMeta(name=name, labels=labels), rules=rules)

    whole = role("all", "old", to="all")
    selector = meta_v1.LabelSelector(match_labels={"to": "all"})
    whole.aggregation_rule = rbac_v1.AggregationRule(cluster_role_selectors=[selector])
    parts = [role("b", "list", "get", to="all"), role("a", "get", to="all"), role("c", "delete"), whole]
    assert [rule.verbs[0] for rule in await role_aggregation.aggregated(whole, parts)] == ["get", "list"]


def test_a_namespace_reports_what_blocks_its_deletion() -> None:
    clean = {type_: status for type_, status, _, _ in namespace.conditions(namespace.Remains())}
    assert set(clean.values()) == {"False"} and len(clean) == 5
    remains = namespace.Remains(objects={"pods.": 2}, finalizers={"x/y": 1}, failures=["secrets: no"])
    reported = {type_: (status, reason) for type_, status, reason, _ in namespace.conditions(remains)}
    assert reported["NamespaceContentRemaining"] == ("True", "SomeResourcesRemain")
    assert reported["NamespaceFinalizersRemaining"] == ("True", "SomeFinalizersRemain")
    assert reported["NamespaceDeletionContentFailure"] == ("True", "ContentDeletionFailed")
    assert reported["NamespaceDeletionDiscoveryFailure"] == ("False", "ResourcesDiscovered")


def volume(name: str, size: str, **spec) -> core_v1.PersistentVolume:
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, labels={"disk": name}),
        spec=core_v1.PersistentVolumeSpec(
            capacity={"storage": size}, **{"access_modes": ["ReadWriteOnce"], "storage_class_name": "s", **spec}
        ),
        status=core_v1.PersistentVolumeStatus(phase="Available"),
    )


def claim(size: str = "2Gi", **spec) -> core_v1.PersistentVolumeClaim:
    resources = core_v1.VolumeResourceRequirements(requests={"storage": size})
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid="uid-c"),
        spec=core_v1.PersistentVolumeClaimSpec(
            resources=resources, **{"access_modes": ["ReadWriteOnce"], "storage_class_name": "s", **spec}
        ),
    )


SIZES = [volume("one", "1Gi"), volume("ten", "10Gi"), volume("three", "3Gi")]


@pytest.mark.parametrize(
    ("desired", "found"),
    [
        (claim(), "three"),
        (claim("5Gi"), "ten"),
        (claim("11Gi"), None),
        (claim(storage_class_name="other"), None),
        (claim(access_modes=["ReadWriteMany"]), None),
        (claim(volume_mode="Block"), None),
        (claim("1Gi", selector=meta_v1.LabelSelector(match_labels={"disk": "ten"})), "ten"),
    ],
)
async def test_the_smallest_volume_that_fits_is_taken(desired, found) -> None:
    match = await find_match(desired, SIZES)
    assert (match.metadata.name if match else None) == found


async def test_the_selector_of_a_claim_is_compiled_once_and_only_for_a_volume_that_fits_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, original = [], compiled_selectors.from_label_selector
    monkeypatch.setattr(compiled_selectors, "from_label_selector", lambda s: (compiled.append(s), original(s))[1])
    compiled_selectors.kept.forget()
    selector = meta_v1.LabelSelector(
        match_expressions=[meta_v1.LabelSelectorRequirement(key=f"k{n}", operator="DoesNotExist") for n in range(3000)]
    )
    for desired in (claim("11Gi", selector=selector), claim(storage_class_name="other", selector=selector)):
        assert await find_match(desired, SIZES) is None
    assert await find_match(claim(selector=selector), SIZES, only_named=True) is None
    assert not compiled
    for _ in range(3):
        assert (await find_match(claim(selector=selector), SIZES)).metadata.name == "three"
    assert len(compiled) == 1


async def test_many_volumes_are_compared_with_a_claim_in_turns() -> None:
    task = asyncio.create_task(find_match(claim(), [volume(f"v{n}", "10Gi") for n in range(4 * STEPS_PER_ITERATION)]))
    await settle(3)
    assert not task.done()
    assert (await task).metadata.name == "v0"


async def test_a_volume_that_names_the_claim_comes_first_and_one_that_names_another_never() -> None:
    mine = volume("mine", "100Gi", claim_ref=core_v1.ObjectReference(namespace="default", name="c"))
    assert (await find_match(claim(), [*SIZES, mine])).metadata.name == "mine"
    assert (await find_match(claim(), [*SIZES, mine], only_named=True)).metadata.name == "mine"
    assert await find_match(claim(), SIZES, only_named=True) is None
    other = volume("other", "2Gi", claim_ref=core_v1.ObjectReference(namespace="default", name="d"))
    before = volume("before", "2Gi", claim_ref=core_v1.ObjectReference(namespace="default", name="c", uid="old"))
    assert await find_match(claim(), [other, before]) is None


@pytest.mark.parametrize(
    ("desired", "why"),
    [
        (claim("3Gi"), ""),
        (claim("4Gi"), "requested PV is too small"),
        (claim("1Gi", storage_class_name="other"), "storageClassName does not match"),
        (claim("1Gi", storage_class_name=None), "storageClassName does not match"),
        (claim("1Gi", volume_mode="Block"), "incompatible volumeMode"),
        (claim("1Gi", access_modes=["ReadWriteOnce", "ReadWriteMany"]), "incompatible accessMode"),
    ],
)
def test_a_volume_that_a_claim_names_has_to_do_for_it(desired, why) -> None:
    assert mismatch(SIZES[2], desired) == why


def test_a_volume_that_goes_does_for_nobody() -> None:
    going = volume("three", "3Gi")
    going.metadata.deletion_timestamp = ago(1)
    assert mismatch(going, claim("1Gi")) == 'the volume is marked for deletion "three"'


async def test_nothing_but_pods_is_deleted_while_their_deletion_fails() -> None:
    requested: list[tuple[str, str]] = []

    class Refusing(MemoryAPI):
        async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
            if path in ("/api", "/apis"):
                return Response(200, {}, json.dumps({"items": [group] if path == "/api" else []}).encode())
            requested.append((method, path))
            if method == "DELETE" and path.endswith("/pods"):
                raise StatusError(500, "InternalError", "no")
            return Response(200, {}, b'{"items": [{"metadata": {"name": "x"}}]}')

    resources = [
        {
            "resource": plural,
            "responseKind": {"kind": plural},
            "scope": "Namespaced",
            "verbs": ["list", "delete", "deletecollection"],
        }
        for plural in ("configmaps", "pods", "secrets")
    ]
    group = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": resources}]}
    remains = await namespace.delete_content(Refusing().client(), "shop", 0.0)
    assert len(remains.failures) == 1 and not remains.empty
    pods = "/api/v1/namespaces/shop/pods"
    assert requested == [("GET", pods), ("DELETE", pods)]


async def test_remaining_pods_of_a_namespace_are_listed_in_pages_as_metadata() -> None:
    requested: list[dict[str, str]] = []
    pods = [
        {
            "metadata": {"name": f"p{n}", "finalizers": ["x/y"] if n else []},
            "spec": {"terminationGracePeriodSeconds": 30},
        }
        for n in range(20)
    ]
    pods[3] |= {"spec": {"terminationGracePeriodSeconds": 90}, "status": {"phase": "Failed"}}

    class Slow(MemoryAPI):
        async def request(self, method: str, path: str, *, query: Any = None, **options: Any) -> Response:
            if path in ("/api", "/apis"):
                return Response(200, {}, json.dumps({"items": [group] if path == "/api" else []}).encode())
            if method == "DELETE":
                return Response(200, {}, b"{}")
            requested.append(dict(query or {}))
            start, limit = int(requested[-1].get("continue", 0)), int(requested[-1]["limit"])
            more = {"continue": str(start + limit)} if start + limit < len(pods) else {}
            body = {"metadata": more, "items": pods[start : start + limit]}
            return Response(200, {}, json.dumps(body).encode())

    resource = {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced"}
    resource["verbs"] = ["list", "delete", "deletecollection"]
    group = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [resource]}]}
    remains = await namespace.delete_content(Slow().client(), "shop", 60.0)
    assert (remains.objects, remains.finalizers, remains.failures) == ({"pods.": 20}, {"x/y": 19}, [])
    assert [query.get("continue") for query in requested] == [None, None, "8"]
    for each in pods:
        each["metadata"]["finalizers"] = []
    assert (await namespace.delete_content(Slow().client(), "shop", 29.0)).failures == []
    assert len((await namespace.delete_content(Slow().client(), "shop", 60.0)).failures) == 1
