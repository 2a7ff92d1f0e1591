"""The order in which a namespace is emptied: pods first, and nothing else while one is left (CVE-2024-7598)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually

NAMESPACE = "/api/v1/namespaces/shop"
POD = f"{NAMESPACE}/pods/db"
KEPT = (
    "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/deny-all",
    f"{NAMESPACE}/configmaps/settings",
    f"{NAMESPACE}/serviceaccounts/default",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path, enable_controllers=True) as made:
        await created(made, "/api/v1/nodes", {"metadata": {"name": "n1"}})
        await created(made, "/api/v1/namespaces", {"metadata": {"name": "shop"}})

        async def account() -> bool:
            return (await made.request("GET", KEPT[2])).status == 200

        await eventually(account)
        await created(made, f"{NAMESPACE}/configmaps", {"metadata": {"name": "settings"}})
        policy = {"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
        await created(made, "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies", policy)
        yield made


async def created(server: ApiUnderTest, path: str, body: dict[str, Any]) -> None:
    answer = await server.request("POST", path, body)
    assert answer.status == 201, answer.json


async def pod(server: ApiUnderTest, *, grace: int = 30, finalizers: tuple[str, ...] = ()) -> None:
    containers = [{"name": "c", "image": "i"}]
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": grace, "containers": containers}
    body = {"metadata": {"name": "db", "finalizers": list(finalizers)}, "spec": spec}
    await created(server, f"{NAMESPACE}/pods", body)


async def conditions(server: ApiUnderTest) -> dict[str, tuple[str, str, str]]:
    status = (await server.request("GET", NAMESPACE)).json["status"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions") or ()}


async def remaining(server: ApiUnderTest) -> None:
    async def is_reported() -> bool:
        return (await conditions(server)).get("NamespaceContentRemaining") == (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: pods. has 1 resource instances",
        )

    await eventually(is_reported)
    await asyncio.sleep(0.5)
    assert [(await server.request("GET", path)).status for path in KEPT] == [200, 200, 200]


async def emptied(server: ApiUnderTest) -> None:
    async def gone() -> bool:
        return (await server.request("GET", NAMESPACE)).status == 404

    await eventually(gone)


async def test_everything_stays_while_a_pod_is_ending(server: ApiUnderTest) -> None:
    await pod(server)
    await server.request("DELETE", NAMESPACE)
    await remaining(server)
    assert (await server.request("GET", POD)).json["metadata"]["deletionTimestamp"]
    assert (await conditions(server))["NamespaceDeletionContentFailure"][0] == "False"
    await server.request("DELETE", POD, {"gracePeriodSeconds": 0})
    await emptied(server)


async def test_everything_stays_while_a_pod_has_finalizers(server: ApiUnderTest) -> None:
    await pod(server, grace=0, finalizers=("example.com/hold",))
    await server.request("DELETE", NAMESPACE)
    await remaining(server)
    found = await conditions(server)
    assert found["NamespaceDeletionContentFailure"][0] == "False"
    assert found["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
    )
    headers = {"Content-Type": "application/merge-patch+json"}
    await server.request("PATCH", POD, b'{"metadata":{"finalizers":null}}', headers=headers)
    await emptied(server)


async def test_a_pod_that_outlives_its_grace_period_is_a_failure(server: ApiUnderTest) -> None:
    await pod(server, grace=1)
    await server.request("DELETE", NAMESPACE)
    await remaining(server)
    failure = (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 1 remaining: "
        "unexpected items still remain in namespace: shop for gvr: /v1, Resource=pods",
    )

    async def is_reported() -> bool:
        return (await conditions(server)).get("NamespaceDeletionContentFailure") == failure

    await eventually(is_reported)
    await remaining(server)
