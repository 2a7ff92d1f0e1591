"""Large objects over a real server: responses and stored objects equal those of small objects."""

import asyncio
import errno
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from control.decoding import yaml_body
from control.event_loop import offload
from control.event_loop.offload import LARGE
from control.interfaces.admission import Attributes
from control.registry import creation
from control.registry.storing import LARGEST_OBJECT
from control.server.helper import jobs
from kube.clock import SYSTEM
from kube.errors import StatusError
from tests.support.api_objects import CONFIGMAPS, PODS, config_map, pod
from tests.support.control import ApiUnderTest, api_server

CONFIGMAP = ["", "v1", "configmaps", ["10.96.0.0/12"], 30000, 32768, False, [], "", 6443]


# -- what it says -------------------------------------------------------------------------------------------------------
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


JSON, YAML = {"Content-Type": "application/json"}, {"Content-Type": "application/yaml"}


GOOD = msgspec.json.encode(config_map("good"))


CASES: list[tuple[str, str, dict[str, str], bytes]] = [
    ("good", CONFIGMAPS, JSON, GOOD),
    ("good dry run", CONFIGMAPS + "?dryRun=All", JSON, msgspec.json.encode(config_map("dry"))),
    ("manager", CONFIGMAPS + "?fieldManager=me", JSON, msgspec.json.encode(config_map("managed"))),
    ("in YAML", CONFIGMAPS, YAML, b"metadata:\n  name: yaml\ndata: {a: b}\n"),
    ("no YAML", CONFIGMAPS, YAML, b"a: b: c\n"),
    ("no JSON", CONFIGMAPS, JSON, b'{"metadata":'),
    ("no object", CONFIGMAPS, JSON, b"[]"),
    ("another kind", CONFIGMAPS, JSON, b'{"kind":"Pod","apiVersion":"v1"}'),
    ("another content type", CONFIGMAPS, {"Content-Type": "text/html"}, GOOD),
    ("wrong type", CONFIGMAPS, JSON, b'{"metadata":{"name":"a"},"data":{"a":1}}'),
    ("unknown field", CONFIGMAPS, JSON, b'{"metadata":{"name":"unknown"},"dat":{}}'),
    ("unknown field, strict", CONFIGMAPS + "?fieldValidation=Strict", JSON, b'{"metadata":{"name":"b"},"dat":{}}'),
    ("revision", CONFIGMAPS, JSON, b'{"metadata":{"name":"a","resourceVersion":"1"}}'),
    ("another namespace", CONFIGMAPS, JSON, b'{"metadata":{"name":"a","namespace":"other"}}'),
    ("no name", CONFIGMAPS, JSON, b"{}"),
    ("wrong name and key", CONFIGMAPS, JSON, b'{"metadata":{"name":"A"},"data":{"/":"v"}}'),
    ("missing namespace", "/api/v1/namespaces/none/configmaps", JSON, GOOD),
    ("pod", PODS, JSON, msgspec.json.encode(pod("one"))),
    ("pod without containers", PODS, JSON, b'{"metadata":{"name":"a"},"spec":{}}'),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "headers", "body"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_large_body_gets_the_same_response_as_an_equivalent_small_one(
    server: ApiUnderTest, path: str, headers: dict[str, str], body: bytes
) -> None:
    answers = []
    for blanks in (b"", b" " * LARGE + b"\n"):
        answer = await server.request("POST", path, body + blanks, headers=headers)
        answers.append((answer.status, alike(answer.json), answer.headers.get("warning")))
        if answer.status == 201 and "dryRun" not in path:
            await server.request(
                "DELETE", f"{path.partition('?')[0]}/{answer.json['metadata']['name']}?gracePeriodSeconds=0"
            )
    small, large = answers
    assert small == large


UPDATES: list[tuple[str, str, dict[str, str], bytes]] = [
    ("good", "", JSON, b'{"metadata":{"name":"held"},"data":{"a":"2"}}'),
    ("in YAML", "", YAML, b"metadata:\n  name: held\ndata: {a: b}\n"),
    ("a repeated key", "", YAML, b"metadata:\n  name: held\ndata: {a: b, a: c}\n"),
    ("no JSON", "", JSON, b'{"metadata":'),
    ("another content type", "", {"Content-Type": "text/html"}, b"{}"),
    ("another kind", "", JSON, b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"held"}}'),
    ("wrong type", "", JSON, b'{"metadata":{"name":"held"},"data":{"a":1}}'),
    ("unknown field", "", JSON, b'{"metadata":{"name":"held"},"dat":{}}'),
    ("unknown field, strict", "?fieldValidation=Strict", JSON, b'{"metadata":{"name":"held"},"dat":{}}'),
    ("an unknown option", "?fieldValidation=Some", JSON, b'{"metadata":{"name":"held"}}'),
    ("no name", "", JSON, b"{}"),
    ("another name", "", JSON, b'{"metadata":{"name":"other"}}'),
    ("another namespace", "", JSON, b'{"metadata":{"name":"held","namespace":"other"}}'),
    ("another UID", "", JSON, b'{"metadata":{"name":"held","uid":"other"}}'),
    ("another revision", "", JSON, b'{"metadata":{"name":"held","resourceVersion":"1"}}'),
    ("wrong key", "", JSON, b'{"metadata":{"name":"held"},"data":{"/":"v"}}'),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("options", "headers", "body"), [case[1:] for case in UPDATES], ids=[case[0] for case in UPDATES]
)
async def test_a_large_update_gets_the_same_response_as_an_equivalent_small_one(
    server: ApiUnderTest, options: str, headers: dict[str, str], body: bytes
) -> None:
    answers, path = [], f"{CONFIGMAPS}/held"
    for blanks in (b"", b" " * LARGE + b"\n"):
        await server.request("POST", CONFIGMAPS, config_map("held"))
        answer = await server.request("PUT", path + options, body + blanks, headers=headers)
        message = re.sub("UID in object meta: .*|resourceVersion: .*", "", str(alike(answer.json)))
        answers.append((answer.status, message, answer.headers.getall("warning", [])))
        await server.request("DELETE", path)
    small, large = answers
    assert small == large


def alike(obj: dict[str, Any]) -> dict[str, Any]:
    """Leave out what no two creations have in common, and how a message repeats its body."""
    meta = obj.get("metadata", {})
    for part in ("uid", "resourceVersion", "creationTimestamp"):
        meta.pop(part, None)
    for manager in meta.get("managedFields", ()):
        manager.pop("time")
    if "unrecognized" in obj.get("message", ""):
        obj["message"] = obj["message"].rpartition(" (")[0]
    return obj


@pytest.mark.asyncio(loop_scope="module")
async def test_a_generated_name_that_is_taken_is_generated_anew(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"key": "v" * LARGE}
    body = {"metadata": {"generateName": "generated-"}, "data": data}
    names = {(await server.request("POST", CONFIGMAPS, body)).json["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3 and all(name.startswith("generated-") for name in names)
    taken = await server.request("POST", CONFIGMAPS, {"metadata": {"name": names.pop()}, "data": data})
    assert (taken.status, taken.json["reason"]) == (409, "AlreadyExists")


GIVEN: list[dict[str, Any]] = [
    {"name": "given"},
    {"generateName": "given-"},
    {"name": "given", "generateName": "given-"},
]


LEFT: list[dict[str, Any]] = [
    dict(zip(("name", "namespace", "generateName"), values, strict=True))
    for values in product(
        (..., None, "", "renamed", "taken", "Wrong"), (..., None, "", "default", "kube-system"), (..., None, "other-")
    )
]
"""Names of an object after admission: `...` leaves a name unchanged, None removes it."""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("options", ["", "?dryRun=All"])
async def test_a_large_object_is_stored_under_the_names_that_admission_leaves_as_a_small_one_is(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    left: dict[str, Any] = {}
    original = server.api.registry.admission.admit

    async def admit(attributes: Attributes) -> None:
        await original(attributes)
        if attributes.resource.target != "configmaps" or attributes.obj is None:
            return
        meta = attributes.obj["metadata"]
        for part, value in left.items():
            if value is None:
                meta.pop(part, None)
            elif value is not ...:
                meta[part] = value

    await server.request("POST", CONFIGMAPS, config_map("taken"))
    monkeypatch.setattr(server.api.registry.admission, "admit", admit)
    seen = set[int]()
    for given, left in product(GIVEN, LEFT):
        answers = []
        for blanks in (b"", b" " * LARGE + b"\n"):
            body = msgspec.json.encode({"metadata": given, "data": {"a": "1"}})
            answer = await server.request("POST", CONFIGMAPS + options, body + blanks, headers=JSON)
            text = re.sub("given-[a-z0-9]{5}", "given-", json.dumps(alike(answer.json)))
            answers.append((answer.status, text))
            if answer.status == 201 and not options:
                name = answer.json["metadata"]["name"]
                assert (await server.request("DELETE", f"{CONFIGMAPS}/{name}")).status == 200
        small, large = answers
        assert small == large, (given, left)
        seen.add(small[0])
    assert seen == {201, 400, 409, 422}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_object_that_its_managed_fields_make_too_large_is_refused_before_admission(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted = list[str]()
    original = server.api.registry.admission.admit

    async def admit(attributes: Attributes) -> None:
        admitted.append(attributes.name)
        await original(attributes)

    monkeypatch.setattr(server.api.registry.admission, "admit", admit)
    body = config_map("grown", data={f"{n:06d}": "" for n in range(110_000)})
    assert len(msgspec.json.encode(body)) < LARGEST_OBJECT
    answer = await server.request("POST", CONFIGMAPS, body)
    assert (answer.status, answer.json["message"]) == (500, "etcdserver: request is too large")
    assert "grown" not in admitted  # the server writes objects of its own


def test_an_object_that_its_type_makes_too_large_is_refused_before_it_is_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled = list[Any]()
    monkeypatch.setattr(creation, "fill", lambda context, strategy, obj, *rest: filled.append(obj))
    body = msgspec.json.encode({"metadata": {"name": "a"}, "spec": {"containers": [{"ports": [{}] * 99_000}]}})
    assert len(body) < LARGEST_OBJECT / 4
    with pytest.raises(StatusError, match="request is too large"):
        jobs.begin_create(
            ["", "v1", "pods", *CONFIGMAP[3:]], body, "application/json", "Ignore", "default", "me", SYSTEM.now()
        )
    assert filled == []


CHANGES: list[tuple[str, str, dict[str, str], dict[str, Any]]] = [
    ("PUT", "", JSON, config_map("changed", data={"b": "2"})),
    ("PUT", "", JSON, config_map("changed", data={"/": "2"})),
    ("PUT", "", JSON, config_map("changed", metadata={"resourceVersion": "1"})),
    ("PATCH", "", {"Content-Type": "application/merge-patch+json"}, {"data": {"": "2"}}),
    ("PATCH", "", {"Content-Type": "application/strategic-merge-patch+json"}, {"data": {"c": "2"}}),
    (
        "PATCH",
        "?fieldManager=me",
        {"Content-Type": "application/apply-patch+yaml"},
        config_map("changed", immutable=True),
    ),
    ("PATCH", "", {"Content-Type": "application/merge-patch+json"}, {"data": {"d": "2"}}),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_changes_of_a_large_object_are_answered_as_those_of_a_small_one(server: ApiUnderTest) -> None:
    answers: list[list[Any]] = []
    for value in ("v", "v" * LARGE):
        answers.append([])
        await server.request("POST", CONFIGMAPS, config_map("changed", binaryData={"key": "A" * len(value) * 4}))
        for method, options, headers, body in CHANGES:
            sent = body | {"binaryData": {"key": "A" * len(value) * 4}} if method == "PUT" else body
            answer = await server.request(
                method, f"{CONFIGMAPS}/changed{options}", msgspec.json.encode(sent), headers=headers
            )
            shown = alike(answer.json)
            shown.pop("binaryData", None)
            answers[-1].append((answer.status, shown, answer.headers.get("warning")))
        await server.request("DELETE", f"{CONFIGMAPS}/changed")
    small, large = answers
    assert small == large
    assert [status for status, _, _ in small] == [200, 422, 409, 422, 200, 200, 422]


@pytest.mark.asyncio(loop_scope="module")
async def test_large_objects_are_written_by_the_thread_where_no_process_can_be_started(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offload.close()
    tried = list[Any]()

    async def start(*args: Any, **kwargs: Any) -> Any:
        tried.append(args)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    large = {"key": "v" * LARGE}
    created = await server.request("POST", CONFIGMAPS, config_map("here", data=large))
    assert (created.status, created.json["metadata"]["name"]) == (201, "here")
    wrong = await server.request("PUT", f"{CONFIGMAPS}/here", config_map("here", data=large | {"/": ""}))
    assert wrong.status == 422
    changed = await server.request("PUT", f"{CONFIGMAPS}/here", config_map("here", data=large | {"b": ""}))
    assert (changed.status, changed.json["data"]) == (200, large | {"b": ""})
    refused = await server.request("POST", CONFIGMAPS, config_map("Here", data=large))
    assert refused.status == 422
    assert len(tried) == 8  # each asks twice


async def test_large_yaml_that_the_audit_log_shows_is_not_read_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, log = tmp_path / "audit.yaml", tmp_path / "audit.log"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, verbs: [create]}]\n")
    threads, original = list[str](), yaml_body.parse

    def parse(body: bytes) -> Any:
        threads.append(threading.current_thread().name.partition("_")[0])
        return original(body)

    monkeypatch.setattr(yaml_body, "parse", parse)
    async with api_server(tmp_path, audit_policy_file=policy, audit_log_file=log) as api:
        body = b"metadata: {name: large}\ndata:\n" + b"".join(b"  k%d: v\n" % n for n in range(LARGE // 8))
        assert (await api.request("POST", CONFIGMAPS, body, headers=YAML)).status == 201
    assert threads == ["large-objects"]
    events = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    (shown,) = [
        e["requestObject"]
        for e in events
        if e["objectRef"].get("namespace") == "default"
        and e["stage"] == "ResponseComplete"
        and e.get("requestObject", {}).get("metadata") == {"name": "large"}
    ]
    assert len(shown["data"]) == LARGE // 8
