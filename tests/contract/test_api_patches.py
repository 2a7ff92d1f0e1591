"""Patches over a real server: the four kinds, server-side apply, invalid and concurrent ones."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


MERGE = {"Content-Type": "application/merge-patch+json"}


STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


JSON_PATCH = {"Content-Type": "application/json-patch+json"}


APPLY = {"Content-Type": "application/apply-patch+yaml"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield api


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


# -- patches --------------------------------------------------------------------------------------------------------------
STRICT = "error decoding patch: json: cannot unmarshal "


@pytest.mark.parametrize(
    ("patch", "option", "code", "message"),
    [
        ({}, "", 400, STRICT + "object into Go value of type []handlers.jsonPatchOp"),
        ("x", "", 400, STRICT + "string into Go value of type []handlers.jsonPatchOp"),
        ([1], "", 400, STRICT + "number into Go value of type handlers.jsonPatchOp"),
        ([[]], "", 400, STRICT + "array into Go value of type handlers.jsonPatchOp"),
        ([{"op": 1, "path": "/a"}], "", 400, STRICT + "number into Go struct field jsonPatchOp.op of type string"),
        (
            [{"op": "remove", "path": 1}],
            "",
            400,
            STRICT + "number into Go struct field jsonPatchOp.path of type string",
        ),
        ([{"op": "copy", "from": 1}], "", 400, STRICT + "number into Go struct field jsonPatchOp.from of type string"),
        ([None], "", 422, "the server rejected our request due to an error in our request"),
        ([{"op": 1, "path": "/a"}], "Ignore", 422, "the server rejected our request due to an error in our request"),
        ({}, "Ignore", 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ([1], "Ignore", 400, "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
    ],
)
async def test_json_patches_of_wrong_types_are_refused_with_upstreams_texts(
    server: ApiUnderTest, patch: Any, option: str, code: int, message: str
) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "types"}})
    answer = await server.request("PATCH", f"{CONFIGMAPS}/types?fieldValidation={option}", patch, headers=JSON_PATCH)
    assert (answer.status, answer.json["message"]) == (code, message)


async def test_the_four_kinds_of_patch(server: ApiUnderTest) -> None:
    await server.request("POST", DEPLOYMENTS, deployment("patched"))
    path = f"{DEPLOYMENTS}/patched"
    merged = await server.request("PATCH", path, {"metadata": {"labels": {"a": "1"}}}, headers=MERGE)
    assert merged.status == 200 and merged.json["metadata"]["labels"] == {"a": "1"}
    container = {"name": "c", "env": [{"name": "X", "value": "y"}]}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    strategic = await server.request("PATCH", path, body, headers=STRATEGIC)
    found = strategic.json["spec"]["template"]["spec"]["containers"]
    assert len(found) == 1 and found[0]["image"] == "nginx" and found[0]["env"] == container["env"]
    operations = [{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "remove", "path": "/metadata/labels/a"}]
    patched = await server.request("PATCH", path, operations, headers=JSON_PATCH)
    assert patched.status == 200 and not patched.json["metadata"].get("labels")
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"by": "apply"}}}
    answer = await server.request("PATCH", f"{path}?fieldManager=tester", applied, headers=APPLY)
    assert answer.status == 200 and answer.json["metadata"]["annotations"] == {"by": "apply"}
    managers = {(m["manager"], m["operation"]) for m in answer.json["metadata"]["managedFields"]}
    assert ("tester", "Apply") in managers


async def test_apply_makes_what_is_not_there_and_finds_conflicts(server: ApiUnderTest) -> None:
    path = f"{CONFIGMAPS}/applied"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "one"}}
    first = await server.request("PATCH", f"{path}?fieldManager=a", body, headers=APPLY)
    assert first.status == 201 and first.json["data"] == {"k": "one"}
    body["data"] = {"k": "two"}
    clash = await server.request("PATCH", f"{path}?fieldManager=b", body, headers=APPLY)
    assert clash.status == 409 and clash.json["reason"] == "Conflict"
    assert 'Apply failed with 1 conflict: conflict with "a": .data.k' in clash.json["message"]
    forced = await server.request("PATCH", f"{path}?fieldManager=b&force=true", body, headers=APPLY)
    assert forced.status == 200 and forced.json["data"] == {"k": "two"}
    nobody = await server.request("PATCH", path, body, headers=APPLY)
    assert (
        nobody.status == 422 and "fieldManager: Required value: is required for apply patch" in nobody.json["message"]
    )


async def test_applying_the_same_again_writes_nothing(server: ApiUnderTest) -> None:
    resources = {"requests": {"cpu": "0.5", "memory": 134217728}, "limits": {"cpu": 1}}
    spec = deployment("again")["spec"]
    spec["template"]["spec"]["containers"][0]["resources"] = resources
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "again"}, "spec": spec}
    path = f"{DEPLOYMENTS}/again?fieldManager=tester"
    first = await server.request("PATCH", path, body, headers=APPLY)
    assert first.status == 201, first.json
    found = first.json["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert found == {"requests": {"cpu": "500m", "memory": "134217728"}, "limits": {"cpu": "1"}}
    second = await server.request("PATCH", path, body, headers=APPLY)
    assert second.status == 200 and second.json == first.json


async def test_patches_that_cannot_be(server: ApiUnderTest) -> None:
    await server.request("POST", DEPLOYMENTS, deployment("stubborn"))
    path = f"{DEPLOYMENTS}/stubborn"
    other = await server.request("PATCH", path, {}, headers={"Content-Type": "application/json"})
    assert other.status == 415 and "application/strategic-merge-patch+json" in other.json["message"]
    wrong = await server.request("PATCH", path, {"spec": {"replicas": "many"}}, headers=MERGE)
    assert wrong.status == 422 and "DeploymentSpec.spec.replicas of type int32" in wrong.json["message"]
    strict = await server.request("PATCH", f"{path}?fieldValidation=Strict", {"spec": {"foo": 1}}, headers=MERGE)
    assert strict.status == 422 and 'strict decoding error: unknown field "spec.foo"' in strict.json["message"]
    text = await server.request("PATCH", path, b"{", headers=MERGE)
    assert text.status == 400
    missing = await server.request("PATCH", f"{DEPLOYMENTS}/nothing", {}, headers=MERGE)
    assert missing.status == 404
    renamed = await server.request("PATCH", path, {"metadata": {"name": "other"}}, headers=MERGE)
    assert renamed.status == 400
    stale = await server.request("PATCH", path, {"metadata": {"resourceVersion": "1"}}, headers=MERGE)
    assert stale.status == 409 and stale.json["reason"] == "Conflict"


async def test_patches_at_the_same_time_all_take_effect(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "race"}})

    async def patch(number: int) -> int:
        body = {"data": {f"k{number}": str(number)}}
        return (await server.request("PATCH", f"{CONFIGMAPS}/race", body, headers=MERGE)).status

    assert set(await asyncio.gather(*(patch(n) for n in range(20)))) == {200}
    assert len((await server.request("GET", f"{CONFIGMAPS}/race")).json["data"]) == 20
