"""Objects of custom resources over a real server, on both storage engines."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.schemas.rules import Rules
from tests.support.control import ApiUnderTest
from tests.support.custom_resources import (
    DEFINITIONS,
    GROUP,
    definition,
    install,
    obj,
    post,
    server_on,
    version,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "etcd"])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiUnderTest]:
    async with server_on(request.param, tmp_path_factory.mktemp("api")) as api:
        yield api


async def test_objects_are_defaulted_pruned_and_versioned(server: ApiUnderTest) -> None:
    path = await install(server, definition("Basic"))
    made = await post(server, path, obj("Basic", bogus=1))
    assert made["spec"] == {"cronSpec": "* * *", "image": "busybox", "replicas": 1}
    assert made["metadata"]["generation"] == 1
    answer = await server.request("POST", path, obj("Basic", "warned", bogus=1))
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.bogus\\""'
    answer = await server.request("POST", f"{path}?fieldValidation=Strict", obj("Basic", "strict", bogus=1))
    assert answer.json["message"] == (
        'Basic in version "v1" cannot be handled as a Basic: strict decoding error: unknown field "spec.bogus"'
    )
    head = b'{"apiVersion":"stable.example.com/v1","kind":"Basic","metadata":{"name":"t"},'
    twice = head + b'"spec":{"cronSpec":"*","cronSpec":"*"}}'
    for text in (twice, twice.replace(b'":', b'" :')):
        json_type = {"Content-Type": "application/json"}
        answer = await server.request("POST", f"{path}?fieldValidation=Strict", text, headers=json_type)
        assert answer.json["message"].endswith('strict decoding error: duplicate field "spec.cronSpec"')
    other = await post(server, path, obj("Other", "other"), 422)
    assert (
        other["message"] == 'Basic.stable.example.com "other" is invalid: kind: Invalid value: "Other": must be Basic'
    )
    older = await post(server, path, obj("Basic", "old", f"{GROUP}/v0"), 400)
    assert "does not match the expected API version (stable.example.com/v1)" in older["message"]
    listed = (await server.request("GET", path)).json
    assert (listed["kind"], [o["metadata"]["name"] for o in listed["items"]]) == ("BasicList", ["a", "warned"])


async def test_errors_have_upstreams_messages(server: ApiUnderTest) -> None:
    path = await install(server, definition("Checked"))
    bad = obj("Checked", replicas="x", tags=["a", "a"], ports=[{"port": 1}])
    found = await post(server, path, bad, 422)
    causes = [(c["field"], c["reason"], c["message"]) for c in found["details"]["causes"]]
    assert sorted(causes) == [
        ("spec.ports[0].name", "FieldValueRequired", "Required value"),
        (
            "spec.replicas",
            "FieldValueTypeInvalid",
            'Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        ),
        ("spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
    ]


async def test_status_and_scale_are_subresources(server: ApiUnderTest) -> None:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    path = await install(server, definition("Scaled", version(subresources={"status": {}, "scale": scale})))
    made = await post(server, path, {**obj("Scaled"), "status": {"phase": "ignored"}})
    assert "status" not in made
    made["status"] = {"replicas": 2, "selector": "app=x", "phase": "Fine"}
    made["spec"]["image"] = "ignored"
    written = (await server.request("PUT", f"{path}/a/status", made)).json
    assert written["status"]["phase"] == "Fine" and written["spec"]["image"] == "busybox"
    assert written["metadata"]["generation"] == 1
    found = (await server.request("GET", f"{path}/a/scale")).json
    assert (found["kind"], found["spec"], found["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 2, "selector": "app=x"},
    )
    merge = {"Content-Type": "application/merge-patch+json"}
    patch = json.dumps({"spec": {"replicas": 5}}).encode()
    assert (await server.request("PATCH", f"{path}/a/scale", patch, headers=merge)).json["spec"] == {"replicas": 5}
    whole = (await server.request("GET", f"{path}/a")).json
    assert (whole["spec"]["replicas"], whole["metadata"]["generation"]) == (5, 2)


async def test_errors_of_a_status_name_its_fields_as_upstream(server: ApiUnderTest) -> None:
    path = await install(server, definition("Reported", version(subresources={"status": {}})))
    made = await post(server, path, obj("Reported"))

    async def causes(status: Any) -> list[tuple[str, str]]:
        answer = await server.request("PUT", f"{path}/a/status", {**made, "status": status})
        assert answer.status == 422, answer.body
        return [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]

    wrong = 'in body must be of type integer: "string"'
    assert await causes({"replicas": "x"}) == [("status.replicas", f'Invalid value: "string": replicas {wrong}')]
    wrong = 'in body must be of type object: "string"'
    assert await causes("x") == [("status", f'Invalid value: "string":  {wrong}')]


async def test_lists_merge_by_their_keys_in_an_apply(server: ApiUnderTest) -> None:
    path = await install(server, definition("Applied"))
    headers = {"Content-Type": "application/apply-patch+yaml"}
    for manager, port in (("one", "x"), ("two", "y")):
        body = json.dumps(obj("Applied", ports=[{"name": port, "port": 1}], tags=[port])).encode()
        answer = await server.request("PATCH", f"{path}/a?fieldManager={manager}", body, headers=headers)
        assert answer.status in (200, 201), answer.body
    found = answer.json
    assert [p["name"] for p in found["spec"]["ports"]] == ["x", "y"] and found["spec"]["tags"] == ["x", "y"]
    body = json.dumps(obj("Applied", ports=[{"name": "x", "port": 2}])).encode()
    answer = await server.request("PATCH", f"{path}/a?fieldManager=two", body, headers=headers)
    assert answer.status == 409 and '.spec.ports[name="x"].port' in answer.json["message"]
    for other in ("application/strategic-merge-patch+json", "text/plain"):
        answer = await server.request("PATCH", f"{path}/a", b"{}", headers={"Content-Type": other})
        assert answer.status == 415 and "strategic" not in answer.json["message"], answer.body


async def test_versions_are_converted_by_renaming_and_stored_in_the_newest(server: ApiUnderTest) -> None:
    made = definition("Versioned", version("v1"), version("v2", storage=False))
    path = await install(server, made)
    await post(server, path, obj("Versioned"))
    newer = path.replace("/v1/", "/v2/")
    assert (await server.request("GET", f"{newer}/a")).json["apiVersion"] == f"{GROUP}/v2"
    listed = (await server.request("GET", newer)).json
    assert (listed["apiVersion"], listed["items"][0]["apiVersion"]) == (f"{GROUP}/v2", f"{GROUP}/v2")
    await post(server, newer, obj("Versioned", "b", f"{GROUP}/v2"))
    name = made["metadata"]["name"]
    current = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
    for each in current["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"
    current = (await server.request("PUT", f"{DEFINITIONS}/{name}", current)).json
    assert current["status"]["storedVersions"] == ["v1", "v2"]
    before = (await server.request("GET", f"{path}/a")).json
    after = (await server.request("PUT", f"{path}/a", before)).json
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "it is stored anew"
    again = (await server.request("PUT", f"{path}/a", after)).json
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"], "nothing is left to do"


async def test_a_table_has_the_additional_printer_columns(server: ApiUnderTest) -> None:
    columns = [
        {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
        {"name": "Port", "type": "integer", "jsonPath": '.spec.ports[?(@.name=="web")].port'},
    ]
    path = await install(server, definition("Printed", version(additionalPrinterColumns=columns)))
    await post(server, path, obj("Printed", ports=[{"name": "db", "port": 1}, {"name": "web", "port": 80}]))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await server.request("GET", path, headers=accept)).json
    assert [(c["name"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Spec", 0),
        ("Replicas", 1),
        ("Port", 0),
    ]
    assert table["rows"][0]["cells"] == ["a", "* * *", 1, 80]


async def test_selectable_fields_select(server: ApiUnderTest) -> None:
    path = await install(server, definition("Chosen", version(selectableFields=[{"jsonPath": ".spec.image"}])))
    await post(server, path, obj("Chosen", "a", image="x"))
    await post(server, path, obj("Chosen", "b", image="y"))
    listed = (await server.request("GET", f"{path}?fieldSelector=spec.image%3Dy")).json
    assert [o["metadata"]["name"] for o in listed["items"]] == ["b"]
    assert (await server.request("GET", f"{path}?fieldSelector=spec.cronSpec%3Dy")).status == 400


async def test_watches_see_changes_in_the_version_they_requested(server: ApiUnderTest) -> None:
    path = await install(server, definition("Watched", version("v1"), version("v2", storage=False)))
    newer = path.replace("/v1/", "/v2/")
    await post(server, path, obj("Watched"))
    url = f"{server.url}{newer}?watch=true"
    async with server.session().get(url) as stream:
        event = json.loads(await stream.content.readline())
        assert (event["type"], event["object"]["apiVersion"]) == ("ADDED", f"{GROUP}/v2")
        await post(server, path, obj("Watched", "b"))
        event = json.loads(await stream.content.readline())
        assert (event["object"]["metadata"]["name"], event["object"]["apiVersion"]) == ("b", f"{GROUP}/v2")


async def test_permissions_are_checked_as_for_any_resource(server: ApiUnderTest) -> None:
    path = await install(server, definition("Guarded"))
    user = ("jane", ())
    answer = await server.request("GET", path, user=user)
    assert answer.status == 403
    assert 'cannot list resource "guardeds" in API group "stable.example.com"' in answer.json["message"]


async def test_rules_are_compiled_with_the_definition_and_evaluated_for_every_object(server: ApiUnderTest) -> None:
    made = definition("Ruled")
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = [{"rule": "self.replica > 1"}]
    found = await post(server, DEFINITIONS, made, 422)
    assert found["message"] == (
        'CustomResourceDefinition.apiextensions.k8s.io "ruleds.stable.example.com" is invalid: '
        "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: "
        '{"Rule":"self.replica > 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: '
        "compilation failed: ERROR: <input>:1:5: undefined field 'replica'\n"
        " | self.replica > 1\n | ....^"
    )
    schema["x-kubernetes-validations"] = [
        {"rule": "self.replicas % 2 == 1", "message": "odd numbers only", "fieldPath": ".replicas"},
        {"rule": "self.cronSpec == oldSelf.cronSpec", "messageExpression": "'stays ' + oldSelf.cronSpec"},
    ]
    path = await install(server, made)
    refused = await post(server, path, obj("Ruled", replicas=2), 422)
    assert refused["message"] == (
        'Ruled.stable.example.com "a" is invalid: spec.replicas: Invalid value: "object": odd numbers only'
    )
    both = await post(server, path, obj("Ruled", replicas="2"), 422)
    assert both["details"]["causes"][-1] == {
        "field": "<nil>",
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "null": some validation rules were not checked because the object was invalid; correct '
        "the existing errors to complete validation",
    }
    await post(server, path, obj("Ruled"))
    merge = {"Content-Type": "application/merge-patch+json"}
    answer = await server.request("PATCH", f"{path}/a", b'{"spec":{"cronSpec":"1 1"}}', headers=merge)
    assert answer.status == 422 and answer.json["details"]["causes"][0]["message"].endswith("stays * * *")


async def test_cluster_scoped_kinds_have_no_namespace(server: ApiUnderTest) -> None:
    path = await install(server, definition("Wide", scope="Cluster"))
    assert path == f"/apis/{GROUP}/v1/wides"
    await post(server, path, obj("Wide"))
    assert (await server.request("GET", f"{path}/a")).json["metadata"].get("namespace") is None
    assert (await server.request("GET", path.replace("wides", "namespaces/default/wides"))).status == 404


async def test_requests_are_counted_by_resource(server: ApiUnderTest) -> None:
    path = await install(server, definition("Counted"))
    await server.request("GET", path)
    text = (await server.request("GET", "/metrics")).body.decode()
    assert 'resource="counteds"' in text


async def test_a_streaming_list_ends_with_its_bookmark_in_the_version_requested(server: ApiUnderTest) -> None:
    path = await install(server, definition("Streamed", version("v1"), version("v2", storage=False)))
    await post(server, path, obj("Streamed"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with server.session().get(f"{server.url}{path.replace('/v1/', '/v2/')}?{query}") as stream:
        events = [json.loads(await stream.content.readline()) for _ in range(2)]
    assert [(e["type"], e["object"]["apiVersion"]) for e in events] == [
        ("ADDED", f"{GROUP}/v2"),
        ("BOOKMARK", f"{GROUP}/v2"),
    ]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_rules_that_cost_much_are_evaluated_beside_the_event_loop(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[str]()
    original = Rules.check

    def check(self: Rules, obj: Any, old: Any) -> Any:
        found = original(self, obj, old)
        threads.append(threading.current_thread().name.partition("_")[0])
        return found

    monkeypatch.setattr(Rules, "check", check)
    made = definition("Costly")
    tags = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tags"]
    tags["items"]["maxLength"], tags["maxItems"] = 8, 300
    tags["x-kubernetes-validations"] = [{"rule": "self.all(a, self.all(b, a.size() == b.size()))"}]
    path = await install(server, made)
    assert (await server.request("POST", path, obj("Costly", "cheap", tags=["a", "b"]))).status == 201
    tags = [f"tag-{number}" for number in range(100, 200)]
    assert (await server.request("POST", path, obj("Costly", "x", tags=tags))).status == 201
    assert (await server.request("POST", path, obj("Costly", "y", tags=["longer", *tags]))).status == 422
    (cheap, costly, *_) = threads
    assert cheap != "large-objects" and costly == "large-objects"


async def test_values_of_another_type_are_refused_also_beside_a_change(server: ApiUnderTest) -> None:
    """In Python 1, 1.0 and true are equal; a client in Go cannot read one into the type of another."""
    nested = version()
    inner = {"type": "object", "properties": {"count": {"type": "integer"}, "on": {"type": "boolean"}}}
    spec = nested["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"] |= {"inner": inner, "list": {"type": "array", "items": inner}}
    path = await install(server, definition("Typed", nested))
    await post(server, path, obj("Typed", inner={"count": 1, "on": True}, list=[{"count": 1}]))
    headers = {"Content-Type": "application/merge-patch+json"}
    before = (await server.request("GET", f"{path}/a")).json
    for changed in (
        {"inner": {"count": True, "on": 1}},
        {"image": "other", "inner": {"count": True}},
        {"image": "other", "list": [{"count": True}]},
    ):
        answer = await server.request("PATCH", f"{path}/a", json.dumps({"spec": changed}).encode(), headers=headers)
        assert answer.status == 422, (changed, answer.body)
        assert 'must be of type integer: "boolean"' in answer.json["message"]
    answer = await server.request(
        "PATCH", f"{path}/a", b'{"spec":{"inner":{"count":1.0},"replicas":1e0}}', headers=headers
    )
    assert answer.status == 200 and answer.json == before
    answer = await server.request("PATCH", f"{path}/a", b'{"spec":{"inner":{"count":2.0}}}', headers=headers)
    assert answer.status == 200 and b'"count":2,' in answer.body and answer.json["metadata"]["generation"] == 2


async def test_defaults_that_multiply_end_at_a_limit(server: ApiUnderTest) -> None:
    def lists(levels: int, defaults: list[Any] | None) -> dict[str, Any]:
        if not levels:
            return {"type": "object"}
        more = {} if defaults is None else {"default": defaults}
        return {"type": "object", "properties": {"a": {"type": "array", "items": lists(levels - 1, defaults), **more}}}

    several = version()
    several["schema"]["openAPIV3Schema"]["properties"]["spec"] = lists(7, None)
    path = await install(server, definition("Multiplied", several))
    made = {"apiVersion": f"{GROUP}/v1", "kind": "Multiplied", "metadata": {"name": "a"}, "spec": {}}
    await post(server, path, made)
    several["schema"]["openAPIV3Schema"]["properties"]["spec"] = lists(7, [{}] * 10)
    name = f"{DEFINITIONS}/multiplieds.{GROUP}"
    changed = json.dumps({"spec": {"versions": [several]}}).encode()
    answer = await server.request("PATCH", name, changed, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status == 200, answer.body
    async with asyncio.timeout(60):
        while (
            answer := await server.request("POST", f"{path}?dryRun=All", made | {"metadata": {"name": "b"}})
        ).status == 201:
            await asyncio.sleep(0.01)
    assert answer.status == 413 and "add more than 50000 values" in answer.json["message"], answer.body
    answer = await server.request("GET", path)
    assert answer.status == 200 and [found["spec"] for found in answer.json["items"]] == [{}]
    assert (await server.request("DELETE", f"{path}/a")).status == 200
