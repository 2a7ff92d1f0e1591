"""Errors of requests that contradict themselves, repeat themselves or name what does not exist."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.control import Answer, ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
YAML = {"Content-Type": "application/yaml"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


def messages(answer: Answer) -> list[str]:
    """Return the texts of an answer's warnings."""
    return [
        value.removeprefix('299 - "').removesuffix('"').replace('\\"', '"')
        for value in answer.headers.getall("Warning", [])
    ]


OPTIONS = [
    (
        "resourceVersionMatch=Exact",
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    ),
    (
        "resourceVersion=0&resourceVersionMatch=Exact",
        'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
    ),
    (
        "resourceVersion=1&resourceVersionMatch=Near",
        'resourceVersionMatch: Unsupported value: "Near": supported values: "Exact", "NotOlderThan", ""',
    ),
    ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
    (
        "watch=1&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
    ),
    (
        "watch=1&sendInitialEvents=true",
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    ),
    (
        "watch=1&resourceVersionMatch=Exact&sendInitialEvents=true",
        'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"',
    ),
    (
        "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x",
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
    ),
]


@pytest.mark.parametrize(("query", "message"), OPTIONS, ids=[q for q, _ in OPTIONS])
async def test_options_that_contradict_one_another_are_422(server: ApiUnderTest, query: str, message: str) -> None:
    answer = await server.request("GET", f"{CONFIGMAPS}?{query}")
    assert answer.status == 422, answer.body
    assert answer.json["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert message in answer.json["message"]


WRITES = [
    ("dryRun=Some", 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
    (
        "fieldValidation=Some",
        'fieldValidation: Unsupported value: "Some": supported values: "Ignore", "Strict", "Warn"',
    ),
    (f"fieldManager={'m' * 129}", "fieldManager: Too long: may not be more than 128 bytes"),
]


@pytest.mark.parametrize(("query", "message"), WRITES, ids=[q[:20] for q, _ in WRITES])
async def test_options_of_writes_are_checked(server: ApiUnderTest, query: str, message: str) -> None:
    answer = await server.request("POST", f"{CONFIGMAPS}?{query}", {"metadata": {"name": "options"}})
    assert answer.status == 422, answer.body
    assert answer.json["message"] == f'CreateOptions.meta.k8s.io "" is invalid: {message}'


async def test_keys_that_stand_twice_in_yaml_are_named_with_their_lines(server: ApiUnderTest) -> None:
    body = b"metadata:\n  name: twice\ndata:\n  a: b\n  a: c\nodd: 1\nmetadata:\n  name: twice\n"
    strict = await server.request("POST", f"{CONFIGMAPS}?fieldValidation=Strict", body, headers=YAML)
    assert strict.status == 400
    assert strict.json["message"].endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 5: key "a" already set in map\n  line 8: key "metadata" '
        'already set in map, unknown field "odd"'
    )
    warned = await server.request("POST", f"{CONFIGMAPS}?dryRun=All", body, headers=YAML)
    assert warned.status == 201
    assert messages(warned) == [
        'line 5: key "a" already set in map',
        'line 8: key "metadata" already set in map',
        'unknown field "odd"',
    ]
    ignored = await server.request("POST", f"{CONFIGMAPS}?dryRun=All&fieldValidation=Ignore", body, headers=YAML)
    assert ignored.status == 201 and messages(ignored) == []


async def test_duplicate_and_unknown_fields_of_a_patch_are_reported(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "patched"}})
    path, body = f"{CONFIGMAPS}/patched", b'{"data":{"a":"b","a":"c"},"odd":1}'
    strict = await server.request("PATCH", f"{path}?fieldValidation=Strict", body, headers=MERGE)
    assert strict.status == 422
    assert strict.json["message"].endswith('strict decoding error: duplicate field "data.a", unknown field "odd"')
    warned = await server.request("PATCH", path, body, headers=MERGE)
    assert warned.status == 200
    assert messages(warned) == ['duplicate field "data.a"', 'unknown field "odd"']
    operations = b'[{"op":"add","path":"/data/x","value":"y","why":1,"op":"add"}]'
    strict = await server.request("PATCH", f"{path}?fieldValidation=Strict", operations, headers=JSON_PATCH)
    assert strict.status == 422
    assert strict.json["message"].endswith(
        'strict decoding error: json patch unknown field "[0].why", json patch duplicate field "[0].op"'
    )


async def test_a_json_patch_has_at_most_ten_thousand_operations(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "long"}})
    operations = [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001
    answer = await server.request("PATCH", f"{CONFIGMAPS}/long", operations, headers=JSON_PATCH)
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert answer.json["message"] == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def deployment(**container: Any) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", **container}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "applied"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


APPLIED = [
    (
        {"env": [{"name": "A", "value": 1}]},
        '.spec.template.spec.containers[name="c"].env[name="A"].value: expected string, got '
        "&value.valueUnstructured{Value:1}",
    ),
    (
        {"stdin": "yes"},
        '.spec.template.spec.containers[name="c"].stdin: expected boolean, got &value.valueUnstructured{Value:"yes"}',
    ),
    (
        {"ports": [{"containerPort": "http"}]},
        '.spec.template.spec.containers[name="c"].ports[containerPort="http",protocol="TCP"].containerPort: expected '
        "numeric (int or float), got string",
    ),
    (
        {"odd": 1},
        '.spec.template.spec.containers[name="c"].odd: field not declared in schema',
    ),
    (
        {"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]},
        '.spec.template.spec.containers[name="c"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]',
    ),
    (
        {"env": [{"value": "x"}]},
        '.spec.template.spec.containers[name="c"].env: element 0: associative list with keys has an element that omits key '
        'field "name" (and doesn\'t have default value)',
    ),
    (
        {"odd": 1, "ports": [{"containerPort": 80, "strange": 1}]},
        'errors:\n  .spec.template.spec.containers[name="c"].odd: field not declared in schema\n  '
        '.spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].strange: field not declared in '
        "schema",
    ),
]


@pytest.mark.parametrize(("container", "message"), APPLIED, ids=[m[:60] for _, m in APPLIED])
@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
async def test_what_is_applied_must_fit_its_kind(
    server: ApiUnderTest, container: dict[str, Any], message: str, validation: str
) -> None:
    path = f"{DEPLOYMENTS}/applied?fieldManager=t&fieldValidation={validation}"
    answer = await server.request("PATCH", path, deployment(**container), headers=APPLY)
    assert answer.status == 500 and "reason" not in answer.json
    assert answer.json["message"] == (
        f"failed to create typed patch object (default/applied; apps/v1, Kind=Deployment): {message}"
    )


async def test_keys_that_are_applied_twice_are_named(server: ApiUnderTest) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: again\ndata:\n  a: b\n  a: c\n"
    path = f"{CONFIGMAPS}/again?fieldManager=t"
    strict = await server.request("PATCH", f"{path}&fieldValidation=Strict", body, headers=APPLY)
    assert strict.status == 400
    assert strict.json["message"] == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 7: key "a" already set in map'
    )
    warned = await server.request("PATCH", path, body, headers=APPLY)
    assert warned.status == 201 and messages(warned) == ['line 7: key "a" already set in map']


async def test_warnings_come_with_what_was_stored(server: ApiUnderTest) -> None:
    found = deployment() | {"metadata": {"name": "a.b"}}
    answer = await server.request("POST", f"{DEPLOYMENTS}?dryRun=All", found)
    assert messages(answer) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is "
        "recommended: [must not contain dots]"
    ]
    endpoints = await server.request("GET", "/api/v1/namespaces/default/endpoints")
    assert messages(endpoints) == ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]
    metrics = (await server.request("GET", "/metrics")).body.decode()
    labels = 'group="",removed_release="",resource="endpoints",subresource="",version="v1"'
    assert f"apiserver_requested_deprecated_apis{{{labels}}} 1\n" in metrics


async def test_a_406_lists_the_offered_media_types(server: ApiUnderTest) -> None:
    offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    wrong, sent = await asyncio.gather(
        server.request("GET", CONFIGMAPS, headers={"Accept": "text/html"}),
        server.request("POST", CONFIGMAPS, b"x", headers={"Content-Type": "text/plain"}),
    )
    assert (wrong.status, wrong.json["reason"]) == (406, "NotAcceptable")
    assert wrong.json["message"] == f"only the following media types are accepted: {offered}"
    assert (sent.status, sent.json["reason"]) == (415, "UnsupportedMediaType")
    assert sent.json["message"] == (
        f"the body of the request was in an unknown format - accepted media types include: {offered}"
    )


async def test_who_applies_a_scale_owns_the_replicas_and_nobody_takes_them_unasked(server: ApiUnderTest) -> None:
    def of(replicas: int) -> dict[str, Any]:
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "s"},
            "spec": {"replicas": replicas},
        }

    found = deployment() | {"metadata": {"name": "s"}}
    found["spec"]["replicas"] = 2
    path = f"{DEPLOYMENTS}/s"
    await server.request("PATCH", f"{path}?fieldManager=author", found, headers=APPLY)
    refused = await server.request("PATCH", f"{path}/scale?fieldManager=scaler", of(5), headers=APPLY)
    assert (refused.status, refused.json["message"]) == (
        409,
        'Apply failed with 1 conflict: conflict with "author": .spec.replicas',
    )
    taken = await server.request("PATCH", f"{path}/scale?fieldManager=scaler&force=true", of(5), headers=APPLY)
    assert (taken.status, taken.json["spec"]) == (200, {"replicas": 5})
    owners = (await server.request("GET", path)).json["metadata"]["managedFields"]
    assert [(o["manager"], o["operation"], o["apiVersion"], o.get("subresource")) for o in owners] == [
        ("author", "Apply", "apps/v1", None),
        ("scaler", "Apply", "apps/v1", "scale"),
    ]
    assert (
        owners[1]["fieldsV1"] == {"f:spec": {"f:replicas": {}}} and "f:replicas" not in owners[0]["fieldsV1"]["f:spec"]
    )
    again = await server.request("PATCH", f"{path}?fieldManager=author", found, headers=APPLY)
    assert again.json["message"] == (
        'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": .spec.replicas'
    )


async def test_only_lists_and_watches_span_namespaces(server: ApiUnderTest) -> None:
    kept = await server.request("POST", CONFIGMAPS, {"metadata": {"name": "kept"}})
    assert kept.status == 201
    for method, path, code in (
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404),
    ):
        body = {"metadata": {"name": "anywhere", "namespace": "default"}} if method == "POST" else None
        assert (await server.request(method, path, body)).status == code, (method, path)
    assert (await server.request("GET", f"{CONFIGMAPS}/kept")).status == 200


async def test_an_object_that_is_named_by_uid_and_is_not_there_is_a_conflict(server: ApiUnderTest) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    for path, plural in ((f"{CONFIGMAPS}/gone", "configmaps"), (f"{leases}/gone", "leases.coordination.k8s.io")):
        answer = await server.request("PUT", path, {"metadata": {"name": "gone", "uid": "abc"}})
        assert answer.status == 409
        assert answer.json["message"] == (
            f'Operation cannot be fulfilled on {plural} "gone": Precondition failed: UID in precondition: abc, '
            "UID in object meta: "
        )
    assert (await server.request("PUT", f"{CONFIGMAPS}/gone", {"metadata": {"name": "gone"}})).status == 404


async def test_a_delete_takes_delete_options_alone(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "stays"}})
    answer = await server.request("DELETE", f"{CONFIGMAPS}/stays", {"kind": "ConfigMap", "apiVersion": "v1"})
    assert answer.status == 400 and 'no kind "ConfigMap" is registered for version "v1"' in answer.json["message"]
    old = {"kind": "DeleteOptions", "apiVersion": "apps/v1"}
    assert (await server.request("DELETE", f"{CONFIGMAPS}/stays", old)).status == 200


async def test_a_revision_that_is_no_number_is_refused_in_the_words_of_upstream(server: ApiUnderTest) -> None:
    answer = await server.request("GET", f"{CONFIGMAPS}?resourceVersion=None")
    assert answer.json["message"] == (
        'resourceVersion: Invalid value: "None": strconv.ParseUint: parsing "None": invalid syntax'
    )


STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
MISFITS = [
    (STRATEGIC, {"spec": {"replicas": "3"}}, "map[spec:map[replicas:3]]", "unrecognized type: int32"),
    (
        STRATEGIC,
        {"metadata": {"labels": {"a": 1}}},
        "map[metadata:map[labels:map[a:1]]]",
        "cannot convert int64 to string",
    ),
    (
        STRATEGIC,
        {"metadata": {"finalizers": "x"}},
        "map[metadata:map[finalizers:x]]",
        "cannot restore slice from string",
    ),
    (STRATEGIC, {"metadata": {"labels": [True]}}, "map[metadata:map[labels:[true]]]", "cannot restore map from slice"),
    (STRATEGIC, {"spec": 1}, "map[spec:1]", "cannot restore struct from: int64"),
    (
        MERGE,
        {"spec": {"replicas": "3"}},
        '{"apiVersion":"apps/v1","kind":"Deployment",',
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    ),
    (
        JSON_PATCH,
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        '{"apiVersion":"apps/v1","kind":"Secret",',
        "converting (v1.Secret) to (v1.Deployment): unknown conversion",
    ),
]


@pytest.mark.parametrize(("headers", "patch", "shown", "why"), MISFITS)
async def test_what_is_patched_into_another_shape_is_refused_in_the_words_of_upstream(
    server: ApiUnderTest, headers: dict[str, str], patch: Any, shown: str, why: str
) -> None:
    await server.request("POST", DEPLOYMENTS, deployment())
    answer = await server.request("PATCH", f"{DEPLOYMENTS}/{deployment()['metadata']['name']}", patch, headers=headers)
    assert answer.status == 422
    [cause] = answer.json["details"]["causes"]
    assert cause["field"] == "patch"
    value, _, reported = cause["message"].removeprefix('Invalid value: "').rpartition('": ')
    assert value.replace('\\"', '"').startswith(shown) and reported == why


async def test_a_document_is_kept_for_good_under_its_own_hash_alone(server: ApiUnderTest) -> None:
    index = (await server.request("GET", "/openapi/v3")).json
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    old = await server.request("GET", "/openapi/v3/apis/apps/v1?hash=OLD")
    assert (old.status, old.headers["Location"]) == (301, url)
    own = await server.request("GET", url)
    assert own.status == 200 and own.headers["Cache-Control"] == "public, immutable"


async def test_what_is_created_below_an_object_is_of_its_namespace(server: ApiUnderTest) -> None:
    away = {"metadata": {"name": "x", "namespace": "kube-system"}}
    bodies = {
        "/api/v1/namespaces/default/pods/x/binding": {**away, "target": {"name": "n"}},
        "/api/v1/namespaces/default/bindings": {**away, "target": {"name": "n"}},
        "/api/v1/namespaces/default/pods/x/eviction": away,
        "/api/v1/namespaces/default/serviceaccounts/x/token": {**away, "spec": {}},
    }
    for path, body in bodies.items():
        answer = await server.request("POST", path, body)
        assert answer.status == 400, path
        assert answer.json["message"] == (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
