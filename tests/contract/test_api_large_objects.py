"""Large objects over the wire: the work on them is done outside the event loop, whichever way they are written and shown."""

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from control.auth import review_validation
from control.decoding import yaml_body
from control.decoding.decode import Decoder
from control.event_loop import offload
from control.event_loop.offload import LARGE
from control.event_loop.weight import VALUE
from control.registry import creation, updating
from control.registry.encoded import EncodedAttributes
from control.server import apply_patch, patching
from control.server.forms import Form
from control.server.subresources import reviews, scale
from tests.support.api_objects import CONFIGMAPS, config_map
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
MERGE = {"Content-Type": "application/merge-patch+json"}
DATA = {f"key-{number}": "value" for number in range(LARGE // 10)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[bool]]:
    """Return for each step of a request whether the thread for large objects did it, as it is seen."""
    seen: dict[str, set[bool]] = {}

    def note(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(each, dict) and each.get("kind") == "Lease" for each in args):
                return original(*args, **kwargs)  # the server renews its own while a test takes long
            by_thread = threading.current_thread().name.startswith("large-objects")
            seen.setdefault(name, set()).add(by_thread)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in ((Decoder, "_convert"), (patching, "_read"), (Form, "_row"), (Form, "_enveloped")):
        note(owner, name)
    for owner, name in ((reviews, "typed_response"), (reviews, "attributes_of"), (review_validation, "check")):
        note(owner, name)
    for name in ("fill", "prepare", "validate"):
        note(creation, name)
    for name in ("_default", "_prepare", "validate"):
        note(updating, name)
    note(scale, "scale_of")
    return seen


CREATION = {"_convert", "fill", "prepare", "validate"}
UPDATE = {"_convert", "_default", "_prepare"}


async def test_a_small_object_is_written_on_the_event_loop(server: ApiUnderTest, apart: dict[str, set[bool]]) -> None:
    await server.request("POST", CONFIGMAPS, config_map("small"))
    await server.request("PUT", f"{CONFIGMAPS}/small", config_map("small", data={"b": "2"}))
    answer = await server.request("PATCH", f"{CONFIGMAPS}/small", {"data": {"c": "3"}}, headers=MERGE)
    assert answer.json["data"] == {"b": "2", "c": "3"}
    assert apart == {step: {False} for step in CREATION | UPDATE | {"_read"}}


async def test_a_large_object_is_created_by_another_process(
    server: ApiUnderTest, apart: dict[str, set[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[EncodedAttributes]()
    monkeypatch.setattr(EncodedAttributes, "obj", property(looked_at.append, lambda self, value: None))
    answer = await server.request("POST", CONFIGMAPS, config_map("large", data=DATA))
    assert (answer.status, answer.json["data"]) == (201, DATA)
    assert apart == {} and looked_at == []


async def test_a_large_object_whose_creation_needs_others_is_created_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    notes = {f"key-{number}": "v" * 1024 for number in range(LARGE // 1024)}
    service = {"metadata": {"name": "large", "annotations": notes}, "spec": {"ports": [{"port": 80}]}}
    answer = await server.request("POST", "/api/v1/namespaces/default/services", service)
    assert answer.json["spec"]["clusterIP"]
    assert all(True in apart[step] for step in CREATION)  # its IPAddress is a small object


async def test_a_large_object_is_replaced_beside_the_event_loop_and_decoded_by_another_process(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    await server.request("POST", CONFIGMAPS, config_map("replaced", data=DATA))
    replaced = config_map("replaced", data=DATA | {"b": "2"})
    assert (await server.request("PUT", f"{CONFIGMAPS}/replaced", replaced)).status == 200
    assert apart == {step: {True} for step in UPDATE - {"_convert"}}


async def test_a_small_patch_of_a_large_object_is_applied_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    await server.request("POST", CONFIGMAPS, config_map("patched", data=DATA))
    apart.clear()
    answer = await server.request("PATCH", f"{CONFIGMAPS}/patched", {"data": {"c": "3"}}, headers=MERGE)
    assert answer.json["data"] == DATA | {"c": "3"}
    assert apart == {step: {True} for step in UPDATE} | {"_read": {False}}


@pytest.mark.parametrize("values", [1, LARGE // 8])
async def test_the_scale_of_an_object_with_a_large_selector_is_made_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]], values: int
) -> None:
    expression = {"key": "a", "operator": "NotIn", "values": [f"value-{number}" for number in range(values)]}
    selector, labels = {"matchLabels": {"app": "a"}, "matchExpressions": [expression]}, {"app": "a"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    deployments, name = "/apis/apps/v1/namespaces/default/deployments", f"scaled-{values}"
    spec = {"selector": selector, "template": pod}
    assert (await server.request("POST", deployments, {"metadata": {"name": name}, "spec": spec})).status == 201
    path = f"{deployments}/{name}/scale"
    shown = (await server.request("GET", path)).json
    assert shown["status"]["selector"].startswith("app=a,a notin (value-0")
    apart.clear()
    assert (await server.request("GET", path)).status == 200
    assert apart["scale_of"] == {values > 1}
    answer = await server.request("PUT", path, shown | {"spec": {"replicas": 2}})
    assert answer.json["spec"] == {"replicas": 2}
    answer = await server.request("PATCH", path, {"spec": {"replicas": 3}}, headers=MERGE)
    assert answer.json["spec"] == {"replicas": 3}
    assert apart["scale_of"] == {values > 1}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("merge-patch+json", "apply_merge_patch"),
        ("strategic-merge-patch+json", "strategic_merge"),
        ("apply-patch+yaml", "apply"),
    ],
)
async def test_a_patch_of_a_large_object_that_takes_too_long_is_a_timeout(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    await server.request("POST", CONFIGMAPS, config_map("slow", data=DATA))
    path, headers = f"{CONFIGMAPS}/slow?fieldManager=me", {"Content-Type": f"application/{kind}"}
    changed = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"b": "2"}}

    def endless(*args: Any, **named: Any) -> Any:
        while True:
            pass

    with monkeypatch.context() as patched:
        patched.setattr(apply_patch if name == "apply" else patching, name, endless)
        patched.setattr(offload, "JOB_SECONDS", 0.05)
        answer = await server.request("PATCH", path, changed, headers=headers)
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert answer.json["message"] == "request did not complete within the allotted timeout"
    assert (await server.request("GET", path)).json["data"] == DATA
    assert (await server.request("PATCH", path, changed, headers=headers)).status == 200
    await server.request("DELETE", path)


async def test_large_objects_are_shown_in_other_forms_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    await server.request("POST", CONFIGMAPS, config_map("shown", data=DATA))
    apart.clear()
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    assert (await server.request("GET", CONFIGMAPS, headers=table)).json["rows"]
    protobuf = {"accept": "application/vnd.kubernetes.protobuf"}
    answer = await server.request("PUT", f"{CONFIGMAPS}/shown", config_map("shown", data=DATA), headers=protobuf)
    assert answer.status == 200
    assert apart["_row"] == {True} and apart["_enveloped"] == {True}


MANY = LARGE // VALUE
"""Values of a body that is worked on outside the event loop, whatever its length."""


async def test_an_object_of_few_bytes_and_many_values_is_written_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    data = {f"{n:x}": "" for n in range(MANY)}
    assert len(msgspec.json.encode(data)) < LARGE / 4
    assert (await server.request("POST", CONFIGMAPS, config_map("many", data=data))).status == 201
    assert apart == {step: {True} for step in CREATION}
    apart.clear()
    assert (await server.request("PUT", f"{CONFIGMAPS}/many", config_map("many", data=data | {"b": "2"}))).status == 200
    assert apart == {step: {True} for step in UPDATE | {"validate"}}


async def test_a_refused_object_of_few_bytes_and_many_values_does_not_start_a_process(
    server: ApiUnderTest, apart: dict[str, set[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "by_helper", None)
    body = {"metadata": {"name": "x"}, "spec": {"containers": [{}] * MANY}}
    answer = await server.request("POST", "/api/v1/namespaces/default/pods", body)
    assert answer.status in (403, 422) and apart["_convert"] == {True}


REVIEWS = "/apis/authorization.k8s.io/v1"
ANYTHING = {"verb": "list", "resource": "pods"}
MANY_ASKED = {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}] * MANY}
MANY_QUESTIONS: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        f"{REVIEWS}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": ANYTHING | {"fieldSelector": MANY_ASKED}}},
        {"check", "attributes_of"},
    ),
    (
        f"{REVIEWS}/subjectaccessreviews",
        {"spec": {"user": "jane", "resourceAttributes": ANYTHING | {"labelSelector": MANY_ASKED}}},
        {"check", "attributes_of"},
    ),
    (
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"metadata": {"annotations": {f"a{n}": "x" for n in range(MANY)}, "ownerReferences": [{}] * MANY}},
        set(),
    ),
]


@pytest.mark.parametrize("accept", ["application/json", "application/yaml"])
@pytest.mark.parametrize(("path", "body", "steps"), MANY_QUESTIONS)
async def test_a_question_of_many_values_is_checked_and_answered_beside_the_event_loop(
    server: ApiUnderTest,
    apart: dict[str, set[bool]],
    path: str,
    body: dict[str, Any],
    steps: set[str],
    accept: str,
) -> None:
    answer = await server.request("POST", path, body, headers={"Accept": accept})
    assert answer.status == 201
    assert apart == {step: {True} for step in steps | {"_convert", "typed_response"}}


@pytest.mark.parametrize(("path", "body", "steps"), MANY_QUESTIONS)
async def test_a_small_question_is_answered_on_the_event_loop_and_a_long_one_refused(
    server: ApiUnderTest, apart: dict[str, set[bool]], path: str, body: dict[str, Any], steps: set[str]
) -> None:
    user = {} if "/selfsubject" in path else {"user": "jane"}
    small = {"spec": user | {"resourceAttributes": ANYTHING}} if steps else {}
    assert (await server.request("POST", path, small)).status == 201
    assert apart == {step: {False} for step in steps | {"_convert", "typed_response"}}
    apart.clear()
    answer = await server.request("POST", path, body | {"kind": "x" * reviews.LARGEST_QUESTION})
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert apart == {}


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
async def test_a_large_patch_is_read_and_applied_at_one_turn(
    server: ApiUnderTest, apart: dict[str, set[bool]], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    turns, original = list[Any](), offload.run

    async def run(user: str, size: int, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        answer = await original(user, size, work, *args, **kwargs)
        turns.append(answer)
        return answer

    await server.request("POST", CONFIGMAPS, config_map("turned"))
    apart.clear()
    monkeypatch.setattr(offload, "run", run)
    body = {"kind": "ConfigMap", "apiVersion": "v1", "data": DATA}
    path = f"{CONFIGMAPS}/turned?fieldManager=me"
    answer = await server.request("PATCH", path, body, headers={"Content-Type": f"application/{kind}"})
    assert (answer.status, answer.json["data"]["key-1"]) == (200, "value")
    assert apart["_read"] == {True}
    assert turns and not any(callable(turn) for turn in turns)  # what was read of a patch waits for no turn
    await server.request("DELETE", path)


async def test_a_large_patch_that_is_tried_again_warns_once(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.request("POST", CONFIGMAPS, config_map("contended"))
    path, original, tries = f"{CONFIGMAPS}/contended", server.api.registry.store.update, list[bytes]()

    async def update(key: str, value: bytes, revision: int, *args: Any) -> Any:
        if key.endswith("/contended") and not tries:
            tries.append(value)
            await server.request("PATCH", path, {"data": {"b": "2"}}, headers=MERGE)
        return await original(key, value, revision, *args)

    monkeypatch.setattr(server.api.registry.store, "update", update)
    answer = await server.request("PATCH", path, {"data": DATA, "dat": {}}, headers=MERGE)
    assert (answer.status, len(tries), answer.json["data"]["b"]) == (200, 1, "2")
    assert str(answer.headers.getall("Warning")).count("unknown field") == 1
    await server.request("DELETE", path)


async def test_a_small_pod_that_its_account_makes_large_is_validated_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]]
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    refs = [{"name": f"{number:0250}"} for number in range(200)]
    await server.request("POST", accounts, {"metadata": {"name": "large"}, "imagePullSecrets": refs})
    apart.clear()
    spec = {"serviceAccountName": "large", "containers": [{"name": "a", "image": "a"}]}
    pods = "/api/v1/namespaces/default/pods"
    answer = await server.request("POST", pods, {"metadata": {"name": "of-large"}, "spec": spec})
    assert (answer.status, answer.json["spec"]["imagePullSecrets"]) == (201, refs)
    assert apart == {"_convert": {False}, "fill": {False}, "prepare": {True}, "validate": {True}}
    await server.request("DELETE", f"{pods}/of-large")


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_small_object_that_a_webhook_makes_large_is_validated_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    name, path = f"grown-{method.lower()}", CONFIGMAPS
    if method == "PUT":
        await server.request("POST", CONFIGMAPS, config_map(name))
        path = f"{CONFIGMAPS}/{name}"
    admission = server.api.registry.admission
    admit = admission.admit

    async def enlarging(attributes: Any) -> None:
        await admit(attributes)
        if attributes.name == name:
            attributes.obj["data"] = DATA
            attributes.reinvocation.wanted = True

    apart.clear()
    monkeypatch.setattr(admission, "admit", enlarging)
    answer = await server.request(method, path, config_map(name, data={"a": "b"}))
    assert (answer.status, answer.json["data"]) == (201 if method == "POST" else 200, DATA)
    if method == "POST":
        assert apart["prepare"] == apart["validate"] == {True}
    else:
        assert apart["_prepare"] == {True} and "validate" not in apart  # another process validates it


@pytest.mark.parametrize("operation", ["copy", "\\u0063opy"])
async def test_a_json_patch_that_copies_is_applied_beside_the_event_loop(
    server: ApiUnderTest, apart: dict[str, set[bool]], operation: str
) -> None:
    name = f"copied-{len(operation)}"
    await server.request("POST", CONFIGMAPS, config_map(name, data={"a": "b"}))
    apart.clear()
    text = f'[{{"op":"{operation}","from":"/data/a","path":"/data/c"}}]'
    headers = {"Content-Type": "application/json-patch+json"}
    answer = await server.request("PATCH", f"{CONFIGMAPS}/{name}", text.encode(), headers=headers)
    assert (answer.status, answer.json["data"]) == (200, {"a": "b", "c": "b"})
    assert all(apart[step] == {True} for step in UPDATE | {"_read"})


async def test_of_a_large_yaml_body_that_was_read_only_bytes_are_kept() -> None:
    text = b"a:\n" + b"- {b: 1.5, c: ~, d: 99999999999999999999999, e: .5}\n" * 1000 + b"a: [x]\n"
    read = await yaml_body.read_ahead(text, "ann")
    assert isinstance(read, yaml_body.ReadBody) and isinstance(read.value, bytes)
    assert yaml_body.load_yaml(read) == yaml_body.load_yaml(text)
    assert yaml_body.duplicate_keys(read) == yaml_body.duplicate_keys(text) != []
    assert not any(isinstance(kept, dict | list) and len(kept) > 1 for kept in vars(read).values())
