"""Bodies of requests, and names in their paths: errors have upstream's messages."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.api_objects import CONFIGMAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, status
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        account = {"metadata": {"name": "default"}}
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        yield api


async def test_a_wrong_type_is_named_as_upstream_does(server: ApiUnderTest) -> None:
    answer = await server.request("POST", DEPLOYMENTS, deployment("typo", replicas="two"))
    assert status(answer) == (
        400,
        "BadRequest",
        'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field '
        "DeploymentSpec.spec.replicas of type int32",
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"replicas": 3000000000},
            "cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            {"replicas": 1.5},
            "cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        ({"paused": "yes"}, "cannot unmarshal string into Go struct field DeploymentSpec.spec.paused of type bool"),
        (
            {"template": {"spec": {"containers": {}}}},
            "cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            {"template": {"spec": {"containers": [{"name": 5}]}}},
            "cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name of type string",
        ),
    ],
)
async def test_wrong_types_deep_inside(server: ApiUnderTest, spec: dict[str, Any], message: str) -> None:
    answer = await server.request("POST", DEPLOYMENTS, deployment("typo", **spec))
    assert answer.status == 400 and answer.json["message"].endswith("json: " + message), answer.json["message"]


async def test_unknown_fields_by_field_validation(server: ApiUnderTest) -> None:
    obj = config_map("unknown")
    obj["spec"] = {"foo": 1}
    strict = await server.request("POST", f"{CONFIGMAPS}?fieldValidation=Strict", obj)
    assert status(strict) == (
        400,
        "BadRequest",
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "spec"',
    )
    warned = await server.request("POST", f"{CONFIGMAPS}?dryRun=All", obj)
    assert warned.status == 201 and warned.headers.getall("Warning") == ['299 - "unknown field \\"spec\\""']
    ignored = await server.request("POST", f"{CONFIGMAPS}?dryRun=All&fieldValidation=Ignore", obj)
    assert ignored.status == 201 and "Warning" not in ignored.headers
    bad = await server.request("POST", f"{CONFIGMAPS}?fieldValidation=Maybe", obj)
    assert bad.status == 422 and 'fieldValidation: Unsupported value: "Maybe"' in bad.json["message"]


async def test_repeated_fields_are_found(server: ApiUnderTest) -> None:
    body = b'{"metadata":{"name":"dup"},"data":{"a":"1","a":"2"}}'
    answer = await server.request(
        "POST", f"{CONFIGMAPS}?fieldValidation=Strict", body, headers={"Content-Type": "application/json"}
    )
    assert answer.status == 400 and answer.json["message"].endswith('strict decoding error: duplicate field "data.a"')


async def test_unknown_fields_in_lists_carry_their_index(server: ApiUnderTest) -> None:
    obj = pod("deep")
    obj["spec"]["containers"][0]["imagePullpolicy"] = "Always"
    answer = await server.request("POST", f"{PODS}?fieldValidation=Strict", obj)
    assert answer.json["message"].endswith('unknown field "spec.containers[0].imagePullpolicy"')


async def test_text_that_is_no_json_is_400(server: ApiUnderTest) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await server.request("POST", CONFIGMAPS, b'{"metadata":', headers=headers)
    assert answer.status == 400 and answer.json["reason"] == "BadRequest"
    assert "unexpected end of JSON input" in answer.json["message"]
    answer = await server.request("POST", CONFIGMAPS, b"[" * 100_000, headers=headers)
    assert answer.status == 400 and "exceeded max depth" in answer.json["message"]


async def test_kind_and_version_must_be_the_paths(server: ApiUnderTest) -> None:
    answer = await server.request("POST", PODS, config_map("x"))
    message = 'ConfigMap in version "v1" cannot be handled as a Pod: converting (v1.ConfigMap) to (v1.Pod): unknown conversion'
    assert status(answer) == (400, "BadRequest", message)
    answer = await server.request("POST", PODS, deployment("x"))
    message = "the API version in the data (apps/v1) does not match the expected API version (v1)"
    assert status(answer) == (400, "BadRequest", message)
    answer = await server.request("POST", PODS, {"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "x"}})
    assert answer.status == 400 and 'no kind "Pood" is registered for version "v1"' in answer.json["message"]


async def test_yaml_is_taken_and_its_aliases_are_not(server: ApiUnderTest) -> None:
    headers = {"Content-Type": "application/yaml"}
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\ndata:\n  on: 'yes'\n"
    answer = await server.request("POST", CONFIGMAPS, text, headers=headers)
    assert answer.status == 201 and answer.json["data"] == {"true": "yes"}
    bomb = b"a: &a [1]\nb: *a\n"
    answer = await server.request("POST", CONFIGMAPS, bomb, headers=headers)
    assert answer.status == 400 and "aliases" in answer.json["message"]


async def test_other_media_types_are_415_and_large_bodies_413(server: ApiUnderTest) -> None:
    answer = await server.request("POST", CONFIGMAPS, b"x", headers={"Content-Type": "text/plain"})
    assert answer.status == 415 and answer.json["reason"] == "UnsupportedMediaType"
    large = config_map("large", data={"a": "x" * (3 * 1024 * 1024)})
    answer = await server.request("POST", CONFIGMAPS, large)
    assert status(answer) == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    above = config_map("above", data={"a": "x" * (1600 * 1024)})
    answer = await server.request("POST", CONFIGMAPS, above)
    assert answer.status in (422, 500), answer.json
    assert (await server.request("GET", f"{CONFIGMAPS}/above")).status == 404


async def test_nulls_of_go_clients_are_taken(server: ApiUnderTest) -> None:
    obj = pod("nulls", creationTimestamp=None, labels=None)
    obj["spec"]["volumes"] = None
    obj["status"] = {"conditions": None}
    answer = await server.request("POST", PODS, obj)
    assert answer.status == 201, answer.json


async def test_a_null_in_a_selector_requires_an_empty_label(server: ApiUnderTest) -> None:
    spec = {"selector": {"app": None}, "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "nulls"}, "spec": spec}
    made = await server.request("POST", "/api/v1/namespaces/default/services", service)
    assert made.status == 201 and made.json["spec"]["selector"] == {"app": ""}
    pod_selector = {"matchLabels": {"app": None}}
    policy = {"metadata": {"name": "nulls"}, "spec": {"podSelector": pod_selector}}
    made = await server.request("POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", policy)
    assert made.status == 201 and made.json["spec"]["podSelector"] == {"matchLabels": {"app": ""}}


# -- names in paths -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["%2e%2e", "..%2fsecrets", "a%252fb", "a%25b"])
async def test_names_that_leave_their_place_are_refused(server: ApiUnderTest, name: str) -> None:
    answer = await server.request("GET", f"{CONFIGMAPS}/{name}")
    assert answer.status in (400, 404) and answer.json["kind"] == "Status"
    put = await server.request("PUT", f"{CONFIGMAPS}/{name}", config_map("x"))
    assert put.status in (400, 404, 405)


async def test_what_is_not_there_is_404(server: ApiUnderTest) -> None:
    answer = await server.request("GET", f"{CONFIGMAPS}/nothing")
    assert status(answer) == (404, "NotFound", 'configmaps "nothing" not found')
    assert answer.json["details"] == {"name": "nothing", "kind": "configmaps"}
    answer = await server.request("GET", f"{DEPLOYMENTS}/nothing")
    assert status(answer)[2] == 'deployments.apps "nothing" not found'
    assert answer.json["details"] == {"name": "nothing", "group": "apps", "kind": "deployments"}
    answer = await server.request("GET", "/api/v1/namespaces/default/sandwiches")
    assert status(answer) == (404, "NotFound", "the server could not find the requested resource")
    assert (await server.request("POST", f"{CONFIGMAPS}/nothing", config_map("nothing"))).status == 405
