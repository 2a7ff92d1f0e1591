"""Custom resources that have a built-in resource's name are none of it, and Namespaces are in no namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.test_auth import bind, created, until
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import GROUP, definition, install, obj

JANE = ("jane", ())


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path, event_ttl=1) as server:
        for name in ("shop", "other"):
            await created(server, "/api/v1/namespaces", {"metadata": {"name": name}})
        await bind(server, "jane", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
        await until(server, 200, "GET", "/api/v1/namespaces/shop/configmaps", user=JANE)
        yield server


async def test_custom_resources_called_events_stay(api: ApiUnderTest) -> None:
    path = await install(api, definition("Event"))
    await created(api, path, obj("Event", "kept"))
    about = {"namespace": "default", "kind": "Pod", "name": "p"}
    place = "/api/v1/namespaces/default/events"
    await created(api, place, {"metadata": {"name": "gone"}, "involvedObject": about})
    changed = await api.request("PUT", f"{path}/kept", obj("Event", "kept", replicas=2))
    assert changed.status == 200
    async with asyncio.timeout(60):
        while (await api.request("GET", f"{place}/gone")).status == 200:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    assert (await api.request("GET", f"{path}/kept")).json["spec"]["replicas"] == 2


NESTED = "/api/v1/namespaces/shop/namespaces"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", NESTED),
        ("GET", f"{NESTED}?watch=1&timeoutSeconds=1"),
        ("GET", f"{NESTED}?fieldSelector=metadata.name%3Dother"),
        ("GET", f"{NESTED}/other"),
        ("GET", f"{NESTED}/other/status"),
        ("GET", "/api/v1/watch/namespaces/shop/namespaces?timeoutSeconds=1"),
        ("GET", "/api/v1/watch/namespaces/shop/namespaces/other?timeoutSeconds=1"),
        ("GET", f"{NESTED}?fieldSelector=metadata.name%3Dshop"),
        ("GET", f"{NESTED}?fieldSelector=metadata.name%3Dshop&watch=1&timeoutSeconds=1"),
        ("POST", NESTED),
        ("PUT", f"{NESTED}/other"),
        ("PUT", f"{NESTED}/other/finalize"),
        ("PATCH", f"{NESTED}/other"),
        ("PATCH", f"{NESTED}/other/status"),
        ("DELETE", f"{NESTED}/other"),
        ("DELETE", NESTED),
    ],
)
async def test_a_right_in_one_namespace_is_none_to_another(api: ApiUnderTest, method: str, path: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"by": "jane"}}}
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    answer = await api.request(method, path, None if method == "GET" else body, headers=headers, user=JANE)
    assert answer.status == 404, answer.body
    other = (await api.request("GET", "/api/v1/namespaces/other")).json
    assert "by" not in other["metadata"]["labels"] and "deletionTimestamp" not in other["metadata"]


async def test_ones_own_namespace_is_in_reach(api: ApiUnderTest) -> None:
    for path in ("/api/v1/namespaces/shop", "/api/v1/watch/namespaces/shop?timeoutSeconds=1"):
        assert (await api.request("GET", path, user=JANE)).status == 200
        assert (await api.request("GET", path.replace("shop", "other"), user=JANE)).status == 403


async def test_cluster_scoped_custom_resources_called_namespaces_are_in_no_namespace(api: ApiUnderTest) -> None:
    path = await install(api, definition("Namespace", scope="Cluster"))
    await created(api, path, obj("Namespace", "shop"))
    assert path == f"/apis/{GROUP}/v1/namespaces"
    for method in ("GET", "DELETE"):
        assert (await api.request(method, f"{path}/shop", user=JANE)).status == 404
    assert [item["metadata"]["name"] for item in (await api.request("GET", path)).json["items"]] == ["shop"]
