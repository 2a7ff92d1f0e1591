"""The aggregation layer with a real extension server over TLS: APIServices, requests, watches, documents."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.aggregated import (
    AGGREGATED,
    APISERVICES,
    FLUNDERS,
    MERGE,
    NAME,
    Started,
    aggregated,
    condition,
    registration,
    touch,
    until,
)
from tests.support.extension import GROUP, LISTED, ROOT, STATUS, VERSION

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Started]:
    async with aggregated(tmp_path_factory.mktemp("aggregation")) as found:
        yield found


async def test_the_servers_own_groups_are_registered_and_available(started: Started) -> None:
    server, _ = started
    items = {i["metadata"]["name"]: i for i in (await server.request("GET", APISERVICES)).json["items"]}
    assert {"v1.", "v1.apps", "v2.autoscaling", "v1.rbac.authorization.k8s.io"} <= set(items)
    (available,) = items["v1.apps"]["status"]["conditions"]
    assert (available["type"], available["status"], available["reason"]) == ("Available", "True", "Local")
    assert items["v1.apps"]["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    assert items["v1."]["spec"] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}
    listed = await server.kubectl("get", "apiservices")
    assert f"{NAME} default/flunder True" in " ".join(listed.stdout.split())


async def test_requests_are_proxied_with_the_user_and_without_credentials(started: Started) -> None:
    server, behind = started
    obj = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": {"name": "one"}, "spec": {"x": 1}}
    made = await server.request("POST", FLUNDERS, obj, headers={"X-Remote-User": "somebody-else"})
    assert made.status == 201 and made.json["metadata"]["uid"] == "u"
    method, path, headers = behind.received[-1]
    assert (method, path) == ("POST", FLUNDERS) and headers["X-Remote-User"] == "kubernetes-admin"
    assert set(headers["X-Remote-Group"].split(",")) == {"system:masters", "system:authenticated"}
    assert "Authorization" not in headers
    missing = await server.request("GET", f"{FLUNDERS}/none?timeout=1s")
    assert missing.status == 404 and missing.json["message"] == "no such flunder"
    assert behind.received[-1][1] == f"{FLUNDERS}/none?timeout=1s"


async def test_an_extension_is_sent_the_options_that_were_authorised(started: Started) -> None:
    server, behind = started
    for written, sent in (
        ("fieldSelector=metadata.name%3Dmine,metadata.name!%3D%zz", ""),
        ("fieldSelector=metadata.name%3Dmine,metadata.name!%3Dx;y&limit=5", "?limit=5"),
        ("fieldSelector=metadata.name=mine&limit=%35", "?fieldSelector=metadata.name%3Dmine&limit=5"),
    ):
        assert (await server.request("GET", f"{FLUNDERS}?{written}")).status == 200
        assert behind.received[-1][1] == FLUNDERS + sent


async def test_headers_of_a_front_proxy_under_any_configured_name_are_not_passed_on(tmp_path: Path) -> None:
    names = {
        "requestheader_username_headers": ("X-Acme-User", "X-Remote-User"),
        "requestheader_uid_headers": ("X-Acme-Uid",),
        "requestheader_group_headers": ("X-Acme-Groups", "X-Remote-Group"),
        "requestheader_extra_headers_prefix": ("X-Acme-Extra-",),
    }
    claimed = {
        "X-Acme-User": "somebody-else",
        "x-ACME-uid": "1",
        "X-Acme-Groups": "system:masters",
        "X-Acme-Extra-Scope": "all",
        "X-Remote-User": "somebody-else",
        "X-Remote-Uid": "1",
        "X-Remote-Extra-Scope": "all",
        "X-Acme-Other": "kept",
    }
    async with aggregated(tmp_path, **names) as (server, behind):
        assert (await server.request("GET", FLUNDERS, headers=claimed)).status == 200
        headers = next(found for _, path, found in reversed(behind.received) if path == FLUNDERS)
        reported = {name.lower() for name in headers if name.lower().startswith(("x-acme", "x-remote"))}
        own = "x-remote-extra-authentication.kubernetes.io%2fcredential-id"
        assert reported - {own} == {"x-remote-user", "x-remote-group", "x-acme-other"}
        assert headers["X-Remote-User"] == "kubernetes-admin"


async def test_who_may_not_is_not_passed_on(started: Started) -> None:
    server, behind = started
    before = len(behind.received)
    refused = await server.request("GET", FLUNDERS, user=("mary", ()))
    assert refused.status == 403 and f'in API group \\"{GROUP}\\"' in refused.body.decode()
    assert all(requested[2].get("X-Remote-User") != "mary" for requested in behind.received[before:])


async def test_a_request_that_comes_back_is_not_passed_on_again(started: Started) -> None:
    """An endpoint of the extension's Service may come to be the API server's."""
    server, behind = started
    seen = len(behind.received)
    other = {"Via": "1.1 elsewhere"}
    assert (await server.request("GET", FLUNDERS, headers=other)).status == 200
    assert len(behind.received) == seen + 1
    via = behind.received[-1][2]["Via"].split(",")
    assert via[0] == "1.1 elsewhere" and len(via) == 2
    again = await server.request("GET", FLUNDERS, headers={"Via": via[1]})
    assert again.status == 503 and "leads back to this API server" in again.json["message"]
    assert len(behind.received) == seen + 1


async def test_a_watch_is_a_stream_through_both_servers(started: Started) -> None:
    server, behind = started
    behind.changed.clear()
    behind.stored.clear()
    async with server.session().get(f"{FLUNDERS}?watch=true") as watch:
        assert watch.status == 200
        behind.stored["one"] = {"metadata": {"name": "one"}}
        behind.changed.set()
        async with asyncio.timeout(30):
            event = json.loads(await watch.content.readline())
    assert event["type"] == "ADDED" and event["object"]["metadata"]["name"] == "one"


async def test_discovery_and_openapi_name_the_extension_beside_the_rest(started: Started) -> None:
    server, _ = started
    groups = {g["name"]: g for g in (await server.request("GET", "/apis")).json["groups"]}
    assert "apps" in groups and groups[GROUP]["preferredVersion"]["groupVersion"] == f"{GROUP}/{VERSION}"
    one = (await server.request("GET", f"/apis/{GROUP}")).json
    assert one["kind"] == "APIGroup" and one["versions"][0]["version"] == VERSION
    resources = (await server.request("GET", ROOT)).json
    assert resources["resources"][0]["name"] == "flunders"
    items = (await server.request("GET", "/apis", headers=AGGREGATED)).json["items"]
    shown = {i["metadata"]["name"]: i for i in items}
    assert "apps" in shown
    (version,) = shown[GROUP]["versions"]
    assert version["freshness"] == "Current" and version["resources"][0]["responseKind"]["kind"] == "Flunder"
    index = (await server.request("GET", "/openapi/v3")).json["paths"]
    assert "apis/apps/v1" in index
    document = await server.request("GET", index[ROOT.strip("/")]["serverRelativeURL"])
    assert document.json["info"]["title"] == "flunders"
    local = await server.request("GET", "/openapi/v3/apis/apps/v1", headers={"Accept-Encoding": "identity"})
    assert local.json["openapi"].startswith("3.")


async def test_the_extensions_part_of_openapi_v2_is_merged_with_an_etag_of_all(started: Started) -> None:
    server, _ = started
    plain = {"Accept-Encoding": "identity"}
    whole = await server.request("GET", "/openapi/v2", headers=plain)
    document = whole.json
    assert "/api/v1/namespaces/{namespace}/pods" in document["paths"] and "/healthz" not in document["paths"]
    get = document["paths"][LISTED]["get"]
    assert get["parameters"] == [{"$ref": "#/parameters/pretty"}]
    shared = {"name": "pretty", "in": "query", "type": "string", "uniqueItems": True}
    assert document["parameters"] == {"pretty": shared}
    name = get["responses"]["200"]["schema"]["$ref"].removeprefix("#/definitions/")
    fish = document["definitions"][name]
    assert fish["properties"]["side"] == {"description": "Where the eyes are.", "type": "string"}
    assert fish["properties"]["status"]["$ref"] == f"#/definitions/{STATUS}_v2", "another type by a name that was taken"
    assert "com.example.Unused" not in document["definitions"]
    again = await server.request("GET", "/openapi/v2", headers={**plain, "If-None-Match": whole.headers["ETag"]})
    assert again.status == 304 and not again.body
    message = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    packed = await server.request("GET", "/openapi/v2", headers={**plain, "Accept": message})
    assert b"A flat fish." in packed.body and packed.headers["ETag"] != whole.headers["ETag"]
    explained = await server.kubectl("explain", "flunders.side")
    assert "Where the eyes are." in explained.stdout


async def test_metrics_of_nodes_and_pods_are_explained(started: Started) -> None:
    server, _ = started
    explained = await server.kubectl("explain", "nodes", "--api-version=metrics.k8s.io/v1beta1")
    assert (
        "KIND:       NodeMetrics" in explained.stdout and "usage\t<map[string]Quantity> -required-" in explained.stdout
    )
    explained = await server.kubectl("explain", "pods.containers.usage", "--api-version=metrics.k8s.io/v1beta1")
    assert "What was used, by resource" in explained.stdout
    index = (await server.request("GET", "/openapi/v3")).json["paths"]
    url = index["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"]
    document = await server.request("GET", url, headers={"Accept-Encoding": "identity"})
    assert document.headers["ETag"].strip('"') == url.rpartition("hash=")[2]
    whole = (await server.request("GET", "/openapi/v2", headers={"Accept-Encoding": "identity"})).json
    assert "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics" in whole["definitions"]


async def test_kubectl_works_with_the_extensions_kind(started: Started) -> None:
    server, behind = started
    meta = {"name": "two", "creationTimestamp": "2026-01-01T00:00:00Z"}
    behind.stored["two"] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": meta}
    listed = await server.kubectl("get", "fl", "-o", "name")
    assert f"flunder.{GROUP}/two" in listed.stdout
    assert "flunders" in (await server.kubectl("api-resources", "--api-group", GROUP)).stdout


async def test_an_extension_that_fails_is_unavailable_until_it_answers_again(started: Started) -> None:
    server, behind = started
    behind.healthy = False
    try:
        await touch(server)
        available = await condition(server, "False", "FailedDiscoveryCheck")
        assert available["message"].startswith("failing or missing response from https://flunder.default.svc:443/apis/")
        refused = await server.request("GET", FLUNDERS)
        assert refused.status == 503 and refused.body == b"service unavailable\n"
        items = (await server.request("GET", "/apis", headers=AGGREGATED)).json["items"]
        stale = next(i for i in items if i["metadata"]["name"] == GROUP)
        assert stale["versions"][0]["freshness"] == "Stale"
        assert (await server.request("GET", "/apis/apps/v1")).status == 200, "nobody else is affected"
    finally:
        behind.healthy = True
    await touch(server)
    await condition(server, "True", "Passed")
    assert (await server.request("GET", FLUNDERS)).status == 200


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"resources": 5}', "Expected"),
        (b'{"resources": [{"name": 5}]}', "Expected"),
        (b"[]", "Expected"),
        (b"[" * 100_000 + b"]" * 100_000, ""),
        (b'{"resources": [' + b"{}," * 2000 + b"{}]}", "more than 2000 resources"),
        (b'{"resources": [], "x": "' + b"A" * (1 << 20) + b'"}', f"{ROOT} is longer than 1048576 bytes"),
    ],
    ids=["a number", "a name that is a number", "a list", "nested deeply", "too many resources", "too long"],
)
async def test_an_extension_whose_discovery_document_is_none_is_unavailable(
    started: Started, body: bytes, why: str
) -> None:
    server, behind = started
    behind.answers = {ROOT: body}
    try:
        await touch(server)
        assert why in (await condition(server, "False", "FailedDiscoveryCheck"))["message"]
        assert (await server.request("GET", "/apis", headers=AGGREGATED)).status == 200
    finally:
        behind.answers = {}
    await touch(server)
    await condition(server, "True", "Passed")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}
    return schema


@pytest.mark.parametrize(
    "part",
    [
        {"definitions": ["a"]},
        {"parameters": 5},
        {"definitions": {"a": 5}},
        {"definitions": {"a": nested(150)}},
        {"parameters": {"a": {"name": "a", "in": "query", "description": "A" * (4 << 20)}}},
        {"x": "A" * (8 << 20)},
    ],
    ids=[
        "definitions are a list",
        "parameters are a number",
        "a definition is a number",
        "nested deeply",
        "a part that is too long",
        "too long",
    ],
)
async def test_an_extension_whose_openapi_document_is_none_is_available_without_it(
    started: Started, part: dict[str, Any]
) -> None:
    server, behind = started
    answers = {"200": {"description": "OK", "schema": {"$ref": "#/definitions/a"}}}
    path = {"get": {"parameters": [{"$ref": "#/parameters/a"}], "responses": answers}}
    parameters = {"a": {"name": "a", "in": "query", "type": "string"}}
    document = {"swagger": "2.0", "paths": {LISTED: path}, "parameters": parameters, **part}
    behind.answers = {"/openapi/v2": json.dumps(document).encode(), "/openapi/v3": b'{"paths": 5}'}
    try:
        await touch(server)

        async def left_out() -> bool:
            return server.api.aggregator.extensions.remotes[GROUP, VERSION].part is None

        await until(left_out)
        await condition(server, "True", "Passed")
        for media in ("application/json", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"):
            assert (await server.request("GET", "/openapi/v2", headers={"Accept": media})).status == 200
    finally:
        behind.answers = {}
        await touch(server)


async def test_an_extension_that_is_silent_delays_no_registration(started: Started) -> None:
    server, behind = started
    behind.silent, requested = True, len(behind.received)
    try:
        await touch(server)

        async def waits() -> bool:
            return len(behind.received) > requested

        await until(waits)
        requested = len(behind.received)
        local = {"group": "local.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
        name = {"name": "v1.local.example.com"}
        await server.request("POST", APISERVICES, {"metadata": name, "spec": local})

        async def is_reported() -> bool:
            found = (await server.request("GET", f"{APISERVICES}/{name['name']}")).json
            return bool((found.get("status") or {}).get("conditions"))

        await until(is_reported)
        assert len(behind.received) == requested, "it was available before the silent one's check was over"
        await server.request("DELETE", f"{APISERVICES}/{name['name']}")
    finally:
        behind.silent = False
        await touch(server)
    await condition(server, "True", "Passed")


async def test_an_extension_answers_while_its_registration_changes_but_not_its_place(started: Started) -> None:
    server, _ = started
    for priority in (16, 17, 15):
        change = {"spec": {"versionPriority": priority}}
        assert (await server.request("PATCH", f"{APISERVICES}/{NAME}", change, headers=MERGE)).status == 200
        assert [(await server.request("GET", FLUNDERS)).status for _ in range(10)] == [200] * 10


async def test_a_deleted_service_and_a_changed_authority_are_reported(started: Started) -> None:
    server, behind = started
    spec = registration(behind)["spec"]
    await server.request("PATCH", f"{APISERVICES}/{NAME}", {"spec": {"service": {"name": "gone"}}}, headers=MERGE)
    available = await condition(server, "False", "ServiceNotFound")
    assert available["message"] == 'service/gone in "default" is not present'
    other = base64.b64encode((server.directory / "pki" / "ca.crt").read_bytes()).decode()
    change = {"spec": {"service": {"name": "flunder"}, "caBundle": other}}
    await server.request("PATCH", f"{APISERVICES}/{NAME}", change, headers=MERGE)
    available = await condition(server, "False", "FailedDiscoveryCheck")
    assert "certificate verify failed" in available["message"]
    await server.request("PATCH", f"{APISERVICES}/{NAME}", {"spec": spec}, headers=MERGE)
    await condition(server, "True", "Passed")


async def test_custom_resources_are_registered_while_they_are_served(started: Started) -> None:
    server, _ = started
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"openAPIV3Schema": {"type": "object"}}
    spec = {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    await server.request("POST", definitions, {"metadata": {"name": "crontabs.stable.example.com"}, "spec": spec})
    place = f"{APISERVICES}/v1.stable.example.com"

    async def registered() -> bool:
        return (await server.request("GET", place)).status == 200

    await until(registered)
    found = (await server.request("GET", place)).json
    assert found["spec"]["groupPriorityMinimum"] == 1000 and found["spec"]["versionPriority"] == 100
    await server.request("DELETE", f"{definitions}/crontabs.stable.example.com")

    async def gone() -> bool:
        return (await server.request("GET", place)).status == 404

    await until(gone)


async def test_an_extension_that_is_taken_away_is_served_no_more(started: Started) -> None:
    server, behind = started
    assert (await server.request("DELETE", f"{APISERVICES}/{NAME}")).status == 200

    async def gone() -> bool:
        return (await server.request("GET", ROOT)).status == 404

    await until(gone)
    names = {g["name"] for g in (await server.request("GET", "/apis")).json["groups"]}
    assert GROUP not in names
    await server.request("POST", APISERVICES, registration(behind))
    await condition(server, "True", "Passed")
