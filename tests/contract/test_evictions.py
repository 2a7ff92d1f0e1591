"""Evictions of pods that become ready meanwhile: their disruption budgets apply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.server.subresources import pods
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = {"Content-Type": "application/merge-patch+json"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield api


async def guarded(server: ApiUnderTest, name: str, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a new pod with a budget that allows no disruption."""
    budget = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, **spec}}
    assert (await server.request("POST", BUDGETS, budget)).status == 201
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}
    assert (await server.request("PATCH", f"{BUDGETS}/{name}/status", {"status": counts}, headers=MERGE)).status == 200
    containers = [{"name": "c", "image": "nginx"}]
    pod = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": containers}}
    made = await server.request("POST", PODS, pod)
    assert made.status == 201, made.body
    return await changed(server, name, status) if status else dict(made.json)


async def changed(server: ApiUnderTest, name: str, status: dict[str, Any]) -> dict[str, Any]:
    answer = await server.request("PATCH", f"{PODS}/{name}/status", {"status": status}, headers=MERGE)
    assert answer.status == 200, answer.body
    return dict(answer.json)


def meanwhile(monkeypatch: pytest.MonkeyPatch, server: ApiUnderTest, *states: dict[str, Any]) -> None:
    """Set a status between the decision about a pod and its deletion, in each attempt the next one."""
    left, mark = list(states), pods._mark_evicted

    async def marked(*args: Any) -> None:
        if left:
            await changed(server, args[3], left.pop(0))
        await mark(*args)

    monkeypatch.setattr(pods, "_mark_evicted", marked)


async def evict(server: ApiUnderTest, name: str, **options: Any) -> Any:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await server.request("POST", f"{PODS}/{name}/eviction", eviction)


async def test_a_pending_pod_that_becomes_ready_does_not_go_without_its_budget(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(server, "pending")
    meanwhile(monkeypatch, server, READY)
    answer = await evict(server, "pending")
    assert answer.status == 429 and "pending needs 1 healthy pods" in str(answer.json["details"]["causes"])
    left = (await server.request("GET", f"{PODS}/pending")).json
    assert not any(c["type"] == "DisruptionTarget" for c in left["status"]["conditions"])


async def test_a_pending_pod_that_stays_pending_goes_though_its_status_changes(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(server, "starting")
    meanwhile(monkeypatch, server, {"message": "one"}, {"message": "two"})
    answer = await evict(server, "starting")
    assert answer.status == 201, answer.body
    assert (await server.request("GET", f"{PODS}/starting")).status == 404


async def test_a_pending_pod_whose_status_changes_without_end_stays_with_a_conflict(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(server, "restless")
    meanwhile(monkeypatch, server, *({"message": str(n)} for n in range(pods.EVICTION_ATTEMPTS)))
    answer = await evict(server, "restless")
    assert answer.status == 409 and "Precondition failed: ResourceVersion" in answer.json["message"]


@pytest.mark.parametrize("policy", ["IfHealthyBudget", "AlwaysAllow"])
async def test_an_unready_pod_that_becomes_ready_does_not_go_without_its_budget(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    name = policy.lower()
    await guarded(server, name, UNREADY, unhealthyPodEvictionPolicy=policy)
    with monkeypatch.context() as patch:
        meanwhile(patch, server, READY)
        answer = await evict(server, name)
    assert answer.status == 429 and answer.json["details"]["retryAfterSeconds"] == 10
    assert (await server.request("GET", f"{PODS}/{name}")).status == 200
    await changed(server, name, UNREADY)
    assert (await evict(server, name)).status == 201


async def test_an_eviction_with_a_resource_version_is_not_checked_again(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await guarded(server, "versioned")
    version = made["metadata"]["resourceVersion"]
    with monkeypatch.context() as patch:
        meanwhile(patch, server, {"message": "one"})
        answer = await evict(server, "versioned", preconditions={"resourceVersion": version})
    assert answer.status == 409
    newest = (await server.request("GET", f"{PODS}/versioned")).json["metadata"]["resourceVersion"]
    answer = await evict(server, "versioned", preconditions={"resourceVersion": newest})
    assert answer.status == 201, answer.body


async def test_a_terminated_pod_goes_in_whatever_state_it_is(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guarded(server, "over", {"phase": "Succeeded"})
    meanwhile(monkeypatch, server, {"message": "one"})
    assert (await evict(server, "over")).status == 201


@pytest.mark.parametrize("fields", [{"f:status": 5}, {"f:status": [1]}, {"f:metadata": {"f:finalizers": "x"}}])
async def test_a_pod_with_malformed_managed_fields_is_evicted_and_deleted(server: ApiUnderTest, fields: object) -> None:
    """Its author could else keep it from eviction, preemption and deletion: each of them writes its status first."""
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    metadata = {"name": "odd", "managedFields": [entry]}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    made = await server.request("POST", PODS, {"metadata": metadata, "spec": spec})
    assert made.status == 201, made.body
    await changed(server, "odd", READY)
    assert (await evict(server, "odd")).status == 201
    answer = await server.request("DELETE", f"{PODS}/odd", {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    assert answer.status == 200, answer.body
