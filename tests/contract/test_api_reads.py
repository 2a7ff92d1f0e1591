"""Lists, watches, tables, discovery over the wire: consistency, selectors, paging, and the forms that kubectl asks for."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from control.server import selector_budget
from control.server.lookup import BY_TARGET
from tests.support.control import ADMIN, ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


async def namespace(server: ApiUnderTest, name: str, count: int = 0) -> str:
    """Make a namespace with some ConfigMaps and return the path of their collection."""
    await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}/configmaps"
    for number in range(count):
        labels = {"number": str(number), "even": str(number % 2 == 0).lower()}
        await server.request("POST", path, {"metadata": {"name": f"c{number}", "labels": labels}})
    return path


def names(listing: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


class Watch:
    """A watch over its own connection, read line by line."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(30):
            line = await self.answer.content.readline()
        assert line, "the watch has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def ended(self) -> bool:
        async with asyncio.timeout(30):
            return await self.answer.content.readline() == b""


class _Opened:
    def __init__(self, server: ApiUnderTest, path: str, headers: dict[str, str] | None = None) -> None:
        url = aiohttp.client.URL(server.url + path, encoded=True)
        self._request = server.session(*ADMIN).get(url, headers=headers)

    async def __aenter__(self) -> Watch:
        answer = await self._request.__aenter__()
        assert answer.status == 200, await answer.read()
        return Watch(answer)

    async def __aexit__(self, *error: Any) -> None:
        self._request._resp.close()


# -- lists ----------------------------------------------------------------------------------------------------------------
async def test_a_list_has_items_in_name_order_and_a_revision(server: ApiUnderTest) -> None:
    path = await namespace(server, "ordered", 3)
    listing = (await server.request("GET", path)).json
    assert listing["kind"] == "ConfigMapList" and listing["apiVersion"] == "v1"
    assert names(listing) == ["c0", "c1", "c2"] and listing["metadata"]["resourceVersion"].isdigit()
    everywhere = (await server.request("GET", "/api/v1/configmaps")).json
    assert {"ordered", "kube-system"} <= {i["metadata"]["namespace"] for i in everywhere["items"]}


async def test_an_empty_list_has_no_null(server: ApiUnderTest) -> None:
    path = await namespace(server, "empty")
    assert b'"items":[]' in (await server.request("GET", path)).body


async def test_label_and_field_selectors(server: ApiUnderTest) -> None:
    path = await namespace(server, "selected", 4)
    assert names((await server.request("GET", f"{path}?labelSelector=even%3Dtrue")).json) == ["c0", "c2"]
    assert names((await server.request("GET", f"{path}?labelSelector=number+in+(1,3)")).json) == ["c1", "c3"]
    assert names((await server.request("GET", f"{path}?fieldSelector=metadata.name%3Dc1")).json) == ["c1"]
    assert names((await server.request("GET", f"{path}?fieldSelector=metadata.name!%3Dc1")).json) == ["c0", "c2", "c3"]
    bad = await server.request("GET", f"{path}?fieldSelector=spec.foo%3Dx")
    assert bad.status == 400 and bad.json["message"].endswith("field label not supported: spec.foo")
    bad = await server.request("GET", f"{path}?labelSelector=a%3D%3D%3Db")
    assert bad.status == 400 and bad.json["reason"] == "BadRequest"


async def test_pages_show_one_revision(server: ApiUnderTest) -> None:
    path = await namespace(server, "paged", 5)
    first = (await server.request("GET", f"{path}?limit=2")).json
    assert names(first) == ["c0", "c1"] and first["metadata"]["remainingItemCount"] == 3
    await server.request("DELETE", f"{path}/c3")
    await server.request("POST", path, {"metadata": {"name": "c2a"}})
    token = first["metadata"]["continue"]
    second = (await server.request("GET", f"{path}?limit=2&continue={token}")).json
    assert names(second) == ["c2", "c3"], "a page shows what the first page's revision showed"
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = (await server.request("GET", f"{path}?limit=2&continue={second['metadata']['continue']}")).json
    assert names(last) == ["c4"] and "continue" not in last["metadata"]
    bad = await server.request("GET", f"{path}?continue=nonsense!")
    assert bad.status == 400 and bad.json["message"].startswith("continue key is not valid")


async def test_exact_revisions_are_listed_from_history(server: ApiUnderTest) -> None:
    path = await namespace(server, "exact", 2)
    before = (await server.request("GET", path)).json["metadata"]["resourceVersion"]
    await server.request("DELETE", f"{path}/c0")
    exact = await server.request("GET", f"{path}?resourceVersion={before}&resourceVersionMatch=Exact")
    assert names(exact.json) == ["c0", "c1"] and exact.json["metadata"]["resourceVersion"] == before
    newer = await server.request("GET", f"{path}?resourceVersion={before}&resourceVersionMatch=NotOlderThan")
    assert names(newer.json) == ["c1"]
    bad = await server.request("GET", f"{path}?resourceVersionMatch=Exact")
    assert bad.status == 422
    assert "resourceVersionMatch is forbidden unless resourceVersion is provided" in bad.json["message"]


async def test_a_revision_from_the_future_is_504(server: ApiUnderTest) -> None:
    answer = await server.request("GET", "/api/v1/configmaps?resourceVersion=999999999")
    assert answer.status == 504 and answer.json["reason"] == "Timeout"
    assert "Too large resource version: 999999999, current: " in answer.json["message"]
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_large_list_is_compressed_for_clients_that_accept_gzip(server: ApiUnderTest) -> None:
    path = await namespace(server, "large")
    await server.request("POST", path, {"metadata": {"name": "big"}, "data": {"x": "abc" * 100_000}})
    plain = await server.request("GET", path, headers={"Accept-Encoding": "identity"})
    packed = await server.request("GET", path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
    assert json.loads(gzip.decompress(packed.body)) == plain.json


# -- watches --------------------------------------------------------------------------------------------------------------
async def test_a_watch_reports_every_change_after_a_revision(server: ApiUnderTest) -> None:
    path = await namespace(server, "watched", 1)
    revision = (await server.request("GET", path)).json["metadata"]["resourceVersion"]
    async with _Opened(server, f"{path}?watch=1&resourceVersion={revision}") as watch:
        made = (await server.request("POST", path, {"metadata": {"name": "n"}})).json
        assert await watch.next() == ("ADDED", made)
        made["data"] = {"k": "v"}
        changed = (await server.request("PUT", f"{path}/n", made)).json
        assert await watch.next() == ("MODIFIED", changed)
        await server.request("DELETE", f"{path}/n")
        kind, obj = await watch.next()
        assert kind == "DELETED" and obj["data"] == {"k": "v"}
        assert int(obj["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])
    async with _Opened(server, f"{path}?watch=1&resourceVersion={revision}") as again:
        assert [(await again.next())[0] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


async def test_watches_of_one_user_with_large_selectors_are_limited(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await namespace(server, "selecting", 1)
    selector = ",".join(f"k{number}!=x" for number in range(1000))
    monkeypatch.setattr(selector_budget, "EACH", 60_000)
    large = f"{path}?watch=1&labelSelector={quote(selector)}"
    async with _Opened(server, large) as watch:
        assert (await watch.next())[0] == "ADDED"
        answer = await server.request("GET", large)
        assert (answer.status, answer.json["reason"]) == (429, "TooManyRequests")
        async with _Opened(server, f"{path}?watch=1&labelSelector=k1!%3Dx") as small:
            assert (await small.next())[0] == "ADDED"
    for _ in range(100):
        if not (budget := server.api.watches._budget._weights):
            break
        await asyncio.sleep(0.05)
    assert budget == {}
    async with _Opened(server, large) as watch:
        assert (await watch.next())[0] == "ADDED"


async def test_a_watch_without_a_revision_begins_with_what_is_there(server: ApiUnderTest) -> None:
    path = await namespace(server, "begins", 2)
    async with _Opened(server, f"{path}?watch=true") as watch:
        assert [(kind, obj["metadata"]["name"]) for kind, obj in [await watch.next(), await watch.next()]] == [
            ("ADDED", "c0"),
            ("ADDED", "c1"),
        ]


async def test_initial_events_end_with_a_bookmark(server: ApiUnderTest) -> None:
    path = await namespace(server, "streamed", 1)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with _Opened(server, f"{path}?{query}") as watch:
        assert (await watch.next())[0] == "ADDED"
        kind, obj = await watch.next()
        assert kind == "BOOKMARK" and obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["kind"] == "ConfigMap" and obj["metadata"]["resourceVersion"].isdigit()
    bad = await server.request("GET", f"{path}?watch=1&sendInitialEvents=true")
    assert bad.status == 422 and "sendInitialEvents requires setting resourceVersionMatch" in bad.json["message"]


async def test_a_selector_sees_objects_come_and_go(server: ApiUnderTest) -> None:
    path = await namespace(server, "comesgoes")
    made = (await server.request("POST", path, {"metadata": {"name": "n"}})).json
    revision = made["metadata"]["resourceVersion"]
    async with _Opened(server, f"{path}?watch=1&resourceVersion={revision}&labelSelector=on%3Dyes") as watch:
        made["metadata"]["labels"] = {"on": "yes"}
        made = (await server.request("PUT", f"{path}/n", made)).json
        assert (await watch.next())[0] == "ADDED"
        made["metadata"]["labels"] = {"on": "no"}
        await server.request("PUT", f"{path}/n", made)
        kind, obj = await watch.next()
        assert kind == "DELETED" and obj["metadata"]["labels"] == {"on": "yes"}


async def test_a_watch_ends_after_its_timeout(server: ApiUnderTest) -> None:
    path = await namespace(server, "ends")
    async with _Opened(server, f"{path}?watch=1&timeoutSeconds=1") as watch:
        assert await watch.ended()


async def test_one_object_is_watched_by_name_and_by_the_old_path(server: ApiUnderTest) -> None:
    path = await namespace(server, "one", 2)
    revision = (await server.request("GET", path)).json["metadata"]["resourceVersion"]
    old = path.replace("/api/v1/", "/api/v1/watch/") + f"/c1?resourceVersion={revision}"
    for url in (f"{path}?watch=1&fieldSelector=metadata.name%3Dc1&resourceVersion={revision}", old):
        async with _Opened(server, url) as watch:
            for name in ("c0", "c1"):
                obj = (await server.request("GET", f"{path}/{name}")).json
                obj["data"] = {"at": url}
                await server.request("PUT", f"{path}/{name}", obj)
            kind, obj = await watch.next()
            assert kind == "MODIFIED" and obj["metadata"]["name"] == "c1"
        revision = obj["metadata"]["resourceVersion"]


async def test_a_compacted_revision_is_reported_as_expired(server: ApiUnderTest) -> None:
    path = await namespace(server, "expired", 3)
    first = (await server.request("GET", f"{path}/c0")).json["metadata"]["resourceVersion"]
    await server.api.store.compact(await server.api.store.current_revision())
    cached = server.api.registry.cached(BY_TARGET["configmaps"])
    cached.recent._changes.clear()
    cached.recent.floor = server.api.cache.revision
    async with _Opened(server, f"{path}?watch=1&resourceVersion={first}") as watch:
        kind, obj = await watch.next()
        assert kind == "ERROR" and obj["kind"] == "Status" and obj["code"] == 410 and obj["reason"] == "Expired"
        assert obj["message"].startswith("too old resource version: ")
        assert await watch.ended()


async def test_a_watch_that_its_client_leaves_is_forgotten(server: ApiUnderTest) -> None:
    path = await namespace(server, "left")
    async with _Opened(server, f"{path}?watch=1") as watch:
        await server.request("POST", path, {"metadata": {"name": "n"}})
        await watch.next()
        assert server.api.serving.edge.streams
    async with asyncio.timeout(30):
        while server.api.serving.edge.streams:
            await asyncio.sleep(0.01)


# -- forms ----------------------------------------------------------------------------------------------------------------
async def test_tables_have_columns_and_rows(server: ApiUnderTest) -> None:
    path = await namespace(server, "tabled", 2)
    table = (await server.request("GET", path, headers={"Accept": TABLE})).json
    assert table["kind"] == "Table" and table["apiVersion"] == "meta.k8s.io/v1"
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [["c0", 0], ["c1", 0]]
    row = table["rows"][0]["object"]
    assert row["kind"] == "PartialObjectMetadata" and row["metadata"]["name"] == "c0" and "data" not in row
    whole = (await server.request("GET", f"{path}?includeObject=Object", headers={"Accept": TABLE})).json
    assert whole["rows"][0]["object"]["kind"] == "ConfigMap"
    none = (await server.request("GET", f"{path}/c0?includeObject=None", headers={"Accept": TABLE})).json
    assert none["rows"][0]["object"] is None and len(none["rows"]) == 1


async def test_a_watched_table_sends_its_columns_once(server: ApiUnderTest) -> None:
    path = await namespace(server, "tablewatch", 2)
    async with _Opened(server, f"{path}?watch=1", {"Accept": TABLE}) as watch:
        kind, first = await watch.next()
        assert kind == "ADDED" and first["kind"] == "Table" and first["columnDefinitions"]
        _, second = await watch.next()
        assert second["rows"][0]["cells"][0] == "c1" and not second["columnDefinitions"]


async def test_partial_metadata(server: ApiUnderTest) -> None:
    path = await namespace(server, "partial", 1)
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    listing = (await server.request("GET", path, headers=accept)).json
    assert listing["kind"] == "PartialObjectMetadataList" and "data" not in listing["items"][0]
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    one = (await server.request("GET", f"{path}/c0", headers=accept)).json
    assert one["kind"] == "PartialObjectMetadata" and set(one) == {"kind", "apiVersion", "metadata"}


async def test_what_is_not_offered_is_406_and_yaml_is_offered(server: ApiUnderTest) -> None:
    path = await namespace(server, "accepted", 1)
    answer = await server.request("GET", f"{path}/c0", headers={"Accept": "application/cbor"})
    assert answer.status == 406 and answer.json["reason"] == "NotAcceptable"
    answer = await server.request("GET", f"{path}/c0", headers={"Accept": "application/yaml"})
    assert answer.headers["Content-Type"] == "application/yaml" and b"kind: ConfigMap\n" in answer.body


# -- discovery, health, version -------------------------------------------------------------------------------------------
async def test_discovery_documents(server: ApiUnderTest) -> None:
    assert (await server.request("GET", "/api")).json["versions"] == ["v1"]
    groups = (await server.request("GET", "/apis")).json["groups"]
    assert {"apps", "batch", "rbac.authorization.k8s.io"} <= {g["name"] for g in groups}
    scaling = next(g for g in groups if g["name"] == "autoscaling")
    assert scaling["preferredVersion"]["groupVersion"] == "autoscaling/v2"
    resources = {r["name"]: r for r in (await server.request("GET", "/api/v1")).json["resources"]}
    assert resources["pods"]["shortNames"] == ["po"] and resources["pods"]["categories"] == ["all"]
    assert resources["pods"]["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert resources["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert (await server.request("GET", "/apis/apps")).json["kind"] == "APIGroup"
    assert (await server.request("GET", "/apis/nowhere.io/v1")).status == 404


async def test_aggregated_discovery_has_an_etag(server: ApiUnderTest) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    answer = await server.request("GET", "/apis", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    apps = next(i for i in answer.json["items"] if i["metadata"]["name"] == "apps")
    deployments = next(r for r in apps["versions"][0]["resources"] if r["resource"] == "deployments")
    assert deployments["responseKind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert {s["subresource"] for s in deployments["subresources"]} == {"scale", "status"}
    headers = {"Accept": accept, "If-None-Match": answer.headers["ETag"]}
    again = await server.request("GET", "/apis", headers=headers)
    assert again.status == 304 and again.body == b"" and "Content-Type" not in again.headers


async def test_health_endpoints(server: ApiUnderTest) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await server.request("GET", path)).body == b"ok"
    verbose = (await server.request("GET", "/readyz?verbose&exclude=etcd")).body.decode()
    assert (
        "[+]ping ok\n" in verbose and "[+]etcd excluded: ok\n" in verbose and verbose.endswith("readyz check passed\n")
    )
    assert (await server.request("GET", "/readyz/ping")).body == b"ok"
    assert (await server.request("GET", "/readyz/nothing")).status == 404
    server.api.stopping = True
    try:
        answer = await server.request("GET", "/readyz")
        assert answer.status == 500 and "[-]shutdown failed: reason withheld\n" in answer.body.decode()
        assert (await server.request("GET", "/livez")).status == 200
    finally:
        server.api.stopping = False


async def test_version_and_unknown_paths(server: ApiUnderTest) -> None:
    version = (await server.request("GET", "/version")).json
    assert (version["major"], version["minor"]) == ("1", "36") and version["gitVersion"].startswith("v1.36.")
    assert (await server.request("GET", "/nowhere")).json["reason"] == "NotFound"
    assert (await server.request("POST", "/version")).status == 405


async def test_every_answer_has_an_audit_id(server: ApiUnderTest) -> None:
    first = await server.request("GET", "/api/v1/namespaces")
    second = await server.request("GET", "/version", headers={"Audit-Id": "given"})
    assert len(first.headers["Audit-Id"]) == 36 and second.headers["Audit-Id"] == "given"
