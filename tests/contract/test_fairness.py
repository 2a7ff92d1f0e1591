"""Priority and fairness over the wire: stored objects, headers, and a list storm beside leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
MARY = ("mary", ("readers",))
NODE = ("system:node:a", ("system:nodes",))
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("fairness")) as api:
        subject = {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "readers"}, "roleRef": role, "subjects": [subject]}
        await api.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)

        async def is_reported() -> bool:
            items = (await api.request("GET", FLOWS)).json["items"]
            return len(items) == 13 and all(i.get("status", {}).get("conditions") for i in items)

        await until(is_reported, "every schema is there and says whether its level exists")
        yield api


async def until(check: object, what: str) -> None:
    async with asyncio.timeout(30):
        while not await check():  # type: ignore[operator]
            await asyncio.sleep(0.05)
    assert what


async def test_a_new_cluster_has_upstreams_schemas_and_levels(server: ApiUnderTest) -> None:
    flows = {i["metadata"]["name"]: i for i in (await server.request("GET", FLOWS)).json["items"]}
    assert {f["status"]["conditions"][0]["status"] for f in flows.values()} == {"False"}
    assert flows["catch-all"]["spec"]["matchingPrecedence"] == 10000
    levels = {i["metadata"]["name"]: i for i in (await server.request("GET", LEVELS)).json["items"]}
    assert set(levels) == {
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    }
    assert levels["exempt"]["spec"]["type"] == "Exempt"


async def test_responses_name_the_flow_schema_and_priority_level(server: ApiUnderTest) -> None:
    flow = (await server.request("GET", f"{FLOWS}/global-default")).json["metadata"]["uid"]
    level = (await server.request("GET", f"{LEVELS}/global-default")).json["metadata"]["uid"]

    async def shown() -> bool:
        answer = await server.request("GET", "/api/v1/namespaces/default/pods", user=MARY)
        assert answer.status == 200
        return (
            answer.headers["X-Kubernetes-PF-FlowSchema-UID"] == flow
            and answer.headers["X-Kubernetes-PF-PriorityLevel-UID"] == level
        )

    await until(shown, "the stored objects' own UIDs are sent")


async def test_what_is_mandatory_comes_back(server: ApiUnderTest) -> None:
    before = (await server.request("GET", f"{FLOWS}/catch-all")).json
    assert (await server.request("DELETE", f"{FLOWS}/catch-all")).status == 200
    await server.request("PATCH", f"{LEVELS}/catch-all", {"spec": {"limited": {"lendablePercent": 90}}}, headers=MERGE)

    async def back() -> bool:
        flow = await server.request("GET", f"{FLOWS}/catch-all")
        level = (await server.request("GET", f"{LEVELS}/catch-all")).json
        return (
            flow.status == 200
            and flow.json["spec"] == before["spec"]
            and flow.json["metadata"]["uid"] != before["metadata"]["uid"]
            and level["spec"]["limited"]["lendablePercent"] == 0
        )

    await until(back, "both are as they were")


async def test_a_schema_without_its_level_dangles(server: ApiUnderTest) -> None:
    spec = {"priorityLevelConfiguration": {"name": "later"}, "matchingPrecedence": 77}
    await server.request("POST", FLOWS, {"metadata": {"name": "early"}, "spec": spec})

    async def dangles(wanted: str) -> bool:
        conditions = (await server.request("GET", f"{FLOWS}/early")).json.get("status", {}).get("conditions") or [{}]
        return conditions[0].get("status") == wanted

    await until(lambda: dangles("True"), "it names a level that is not there")
    limited = {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}
    await server.request(
        "POST", LEVELS, {"metadata": {"name": "later"}, "spec": {"type": "Limited", "limited": limited}}
    )
    await until(lambda: dangles("False"), "now it is there")
    for place in (f"{FLOWS}/early", f"{LEVELS}/later"):
        assert (await server.request("DELETE", place)).status == 200


async def test_too_many_requests_are_refused_with_retry_after(server: ApiUnderTest) -> None:
    await server.full("global-default")
    try:
        refused = await server.request("GET", "/api/v1/namespaces/default/pods", user=MARY)
        owner = await server.request("GET", "/api/v1/namespaces/default/pods")
    finally:
        server.roomy("global-default")
    assert refused.status == 429 and refused.headers["Retry-After"] == "1"
    assert refused.json["reason"] == "TooManyRequests" and refused.json["details"]["retryAfterSeconds"] == 1
    assert refused.headers["X-Kubernetes-PF-FlowSchema-UID"]
    assert owner.status == 200, "the cluster's owner is exempt"
    metrics = (await server.request("GET", "/metrics")).body.decode()
    name = 'apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default"'
    assert name in metrics
    assert 'apiserver_flowcontrol_nominal_limit_seats{priority_level="node-high"}' in metrics


async def test_a_storm_of_lists_does_not_starve_a_lease(server: ApiUnderTest) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    await asyncio.gather(
        *(server.request("POST", path, {"metadata": {"name": f"c{n}"}, "data": {"k": "x" * 2000}}) for n in range(250))
    )
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 40}
    made = await server.request("POST", leases, {"metadata": {"name": "a"}, "spec": spec}, user=NODE)
    assert made.status == 201, made.json
    lists = 0
    storming = True

    async def storm(number: int) -> None:
        nonlocal lists
        while storming:
            answer = await server.request("GET", path, user=(f"storm-{number}", ("readers",)))
            assert answer.status in (200, 429)
            lists += answer.status == 200

    clients = [asyncio.create_task(storm(n), name=f"storm-{n}") for n in range(40)]
    try:
        async with asyncio.timeout(60):
            while lists < 40:
                await asyncio.sleep(0.01)
        between = []
        for _ in range(20):
            before = lists
            lease = (await server.request("GET", f"{leases}/a", user=NODE)).json
            lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
            renewed = await server.request("PUT", f"{leases}/a", lease, user=NODE)
            assert renewed.status == 200, renewed.json
            between.append(lists - before)
    finally:
        storming = False
        await asyncio.gather(*clients)
    # Two requests of a lease go through while far fewer lists are served than clients stand in line.
    assert sorted(between)[len(between) // 2] < 30, between
