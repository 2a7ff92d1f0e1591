"""A name that was authorised is the only one that is shown: in the path, in a field selector, in both."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kube.json_object import Object
from tests.contract.test_auth import bind, created, until
from tests.support.control import ApiUnderTest, api_server

JANE = ("jane", ())
SECRETS = "/api/v1/namespaces/shop/secrets"
WATCHED = "/api/v1/watch/namespaces/shop/secrets"
READS = ["get", "list", "watch", "deletecollection"]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        await created(server, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        for name in ("allowed", "other"):
            value = base64.b64encode(f"the {name} value".encode()).decode()
            await created(server, SECRETS, {"metadata": {"name": name}, "data": {"v": value}})
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["allowed"], "verbs": READS}
        await bind(server, "jane", rule)
        await until(server, 200, "GET", f"{SECRETS}/allowed", user=JANE)
        yield server


async def ask(api: ApiUnderTest, path: str, method: str = "GET", **query: str) -> tuple[int, Object, list[str]]:
    """Return the status, the Status or list, and the names of the objects that are shown."""
    text = "&".join(f"{key}={quote(value)}" for key, value in query.items())
    answer = await asyncio.wait_for(api.request(method, f"{path}?timeoutSeconds=1&{text}", user=JANE), 20)
    if answer.status != 200:
        return answer.status, answer.json, []
    lines = [json.loads(line) for line in answer.body.splitlines()]
    if len(lines) == 1 and lines[0].get("kind", "").endswith("List"):
        return 200, lines[0], [item["metadata"]["name"] for item in lines[0]["items"]]
    return 200, {}, [line["object"]["metadata"]["name"] for line in lines]


async def test_a_watched_path_that_names_an_object_shows_no_other(api: ApiUnderTest) -> None:
    mismatch = "fieldSelector metadata.name doesn't match requested name"
    for selector in ("metadata.name=other", "metadata.name==other", "metadata.name!=x", "type=Opaque"):
        status, found, shown = await ask(api, f"{WATCHED}/allowed", fieldSelector=selector, resourceVersion="0")
        assert (status, found.get("message"), shown) == (400, mismatch, []), selector
    for selector in ("", "metadata.name=allowed", "type=Opaque,metadata.name=allowed"):
        status, _, shown = await ask(api, f"{WATCHED}/allowed", fieldSelector=selector, resourceVersion="0")
        assert (status, shown) == (200, ["allowed"]), selector


async def test_a_collection_that_a_field_selector_narrows_to_one_object_shows_that_one(api: ApiUnderTest) -> None:
    for watch in ("0", "1"):
        for selector in ("metadata.name=allowed", "metadata.name=allowed,metadata.name=other"):
            status, _, shown = await ask(api, SECRETS, fieldSelector=selector, watch=watch, resourceVersion="0")
            assert status == 200 and set(shown) <= {"allowed"}, (selector, watch)


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "metadata.name=other",
        "metadata.name!=allowed",
        "metadata.name=a/allowed",
        r"metadata.name=other\,metadata.name=allowed",
        "metadata.name=allowed=other",
        "metadata.namespace=shop",
        " metadata.name=allowed",
    ],
)
@pytest.mark.parametrize("watch", ["0", "1"])
async def test_any_other_selection_of_a_collection_is_refused(api: ApiUnderTest, selector: str, watch: str) -> None:
    status, found, _ = await ask(api, SECRETS, fieldSelector=selector, watch=watch, resourceVersion="0")
    assert (status, found.get("reason")) == (403, "Forbidden")


async def test_the_first_of_two_field_selectors_is_both_authorised_and_applied(api: ApiUnderTest) -> None:
    twice = "fieldSelector=metadata.name%3Dallowed&fieldSelector=metadata.name%3Dother"
    answer = await api.request("GET", f"{SECRETS}?{twice}", user=JANE)
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["allowed"]
    answer = await api.request("GET", f"{SECRETS}?{'&'.join(reversed(twice.split('&')))}", user=JANE)
    assert answer.status == 403


@pytest.mark.parametrize("option", ["limit=x", "limit=", "timeoutSeconds=1.5", "labelSelector=%3D"])
async def test_beside_an_option_that_cannot_be_read_a_selector_names_nothing(api: ApiUnderTest, option: str) -> None:
    path = f"{SECRETS}?fieldSelector=metadata.name%3Dallowed&{option}"
    assert (await api.request("GET", path, user=JANE)).status == 403
    assert (await api.request("GET", path)).status == 400


async def test_of_two_names_the_first_in_order_is_authorised(api: ApiUnderTest) -> None:
    for selector in ("metadata.name=allowed,metadata.name=other", "metadata.name=other,metadata.name=allowed"):
        answer = await api.request("GET", f"{SECRETS}?fieldSelector={quote(selector)}", user=JANE)
        assert answer.status == 200 and answer.json["items"] == [], selector


async def test_deleting_a_collection_is_not_authorised_by_name(api: ApiUnderTest) -> None:
    for name in ("allowed", "other"):
        status, found, _ = await ask(api, SECRETS, "DELETE", fieldSelector=f"metadata.name={name}")
        assert (status, found["reason"]) == (403, "Forbidden")
    for name in ("allowed", "other"):
        assert (await api.request("GET", f"{SECRETS}/{name}")).status == 200


async def test_old_watch_paths_are_only_what_upstream_routes(api: ApiUnderTest) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = await api.request(method, f"{WATCHED}/allowed?timeoutSeconds=1", {})
        assert answer.status == 405, method
    for path in (f"{WATCHED}/allowed/status", f"{WATCHED}/allowed/x", "/api/v1/watch/secrets/allowed"):
        assert (await api.request("GET", f"{path}?timeoutSeconds=1")).status == 404, path


async def test_the_state_of_components_is_selected_like_any_list(api: ApiUnderTest) -> None:
    for selector, shown in (("metadata.name=scheduler", ["scheduler"]), ("metadata.name=x", [])):
        answer = await api.request("GET", f"/api/v1/componentstatuses?fieldSelector={quote(selector)}")
        assert [item["metadata"]["name"] for item in answer.json["items"]] == shown


async def test_metrics_of_one_pod_are_requested_with_its_namespace(api: ApiUnderTest) -> None:
    assert (await api.request("GET", "/apis/metrics.k8s.io/v1beta1/pods/p")).status == 404
    assert (await api.request("GET", "/apis/metrics.k8s.io/v1beta1/pods")).status == 200
