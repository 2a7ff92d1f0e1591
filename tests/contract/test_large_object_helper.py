"""The helper process for large objects: what it says is what the event loop would say, and it holds nobody up."""

import asyncio
import contextlib
import errno
import gc
import json
import os
import re
import signal
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from control import offload
from control.admission.plugin import Attributes
from control.decoding import yaml_body
from control.helper import __main__ as helper_main
from control.helper import client, jobs
from control.helper.client import Helper, HelperFailed
from control.http.protocol import ApiProtocol
from control.offload import LARGE
from control.registry import creation
from control.registry.storing import LARGEST_OBJECT
from kube.clock import SYSTEM
from kube.errors import StatusError
from tests.support.api_objects import CONFIGMAPS, PODS, config_map, pod
from tests.support.control import ApiUnderTest, api_server

CONFIGMAP = ["", "v1", "configmaps", ["10.96.0.0/12"], 30000, 32768, False]
NEVER = b'{"metadata":{"name":"A"}}'


# -- the process --------------------------------------------------------------------------------------------------------
@pytest_asyncio.fixture
async def helper() -> AsyncIterator[Helper]:
    helper = Helper()
    yield helper
    await helper.close()


def finishing(helper: Helper, data: bytes = NEVER) -> Any:
    return helper.call("finish_create", CONFIGMAP, "default", data, True)


async def test_the_process_is_started_by_the_first_job_and_does_the_next_one_too(helper: Helper) -> None:
    assert helper.pid is None
    with pytest.raises(StatusError, match=r"metadata\.name: Invalid value"):
        await finishing(helper)
    first = helper.pid
    value, shown, name, warnings = await finishing(helper, b'{"metadata":{"name":"a"}}')
    assert msgspec.json.decode(shown)["metadata"] == {"name": "a", "namespace": "default"}
    assert b'"resourceVersion":""' in value and (name, warnings) == ("a", [])
    assert helper.pid == first


async def test_the_process_goes_before_the_server_where_memory_runs_out(helper: Helper) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert score_of(helper) >= 500


def score_of(helper: Helper) -> int:
    return int(Path(f"/proc/{helper.pid}/oom_score_adj").read_text())


async def test_a_job_that_takes_too_long_ends_with_its_process(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGSTOP)
    monkeypatch.setattr(client, "JOB_SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        await finishing(helper)
    assert helper.pid is None
    monkeypatch.undo()
    with pytest.raises(StatusError):
        await finishing(helper)


def test_a_job_that_takes_too_much_of_the_processor_is_a_timeout_and_the_process_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless() -> None:
        while True:
            with contextlib.suppress(Exception):
                sorted(range(100), key=lambda number: -number)

    monkeypatch.setitem(jobs.JOBS, "endless", endless)
    monkeypatch.setattr(helper_main, "PROCESSOR_SECONDS", 0.02)
    before = signal.signal(signal.SIGPROF, helper_main._end_job)
    try:
        for _ in range(3):
            value, error = helper_main._done(msgspec.msgpack.encode(["endless", []]))
            assert value is None
            assert error[:3] == [504, "Timeout", "request did not complete within the allotted timeout"]
            assert helper_main._done(msgspec.msgpack.encode(["none", []])) == [None, "KeyError: 'none'"]
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0) and gc.isenabled()
    finally:
        signal.signal(signal.SIGPROF, before)


async def test_a_process_that_was_killed_fails_its_job_alone(helper: Helper) -> None:
    with pytest.raises(StatusError):
        await finishing(helper)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGSTOP)
    waiting = asyncio.ensure_future(finishing(helper))
    await asyncio.sleep(0)
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(HelperFailed):
        await waiting
    with pytest.raises(StatusError):
        await finishing(helper)


async def test_a_fault_of_a_job_is_no_refusal(helper: Helper) -> None:
    with pytest.raises(HelperFailed, match="DecodeError"):
        await finishing(helper, b"no JSON")


async def test_a_fault_is_one_record_of_the_log_whose_other_lines_are_indented(
    helper: Helper, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HelperFailed):
        await finishing(helper, b'{"metadata":{"name":"a"},"data":5}')
    written = capfd.readouterr().err.splitlines()
    assert "a job for a large object failed" in written[0]
    assert len(written) > 2 and all(line.startswith("    ") for line in written[1:])


async def test_a_process_without_jobs_ends(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_SECONDS", 0.01)
    with pytest.raises(StatusError):
        await finishing(helper)
    pid = helper.pid
    async with asyncio.timeout(10):
        while helper.pid is not None or os.access(f"/proc/{pid}", os.F_OK):
            await asyncio.sleep(0.01)


async def test_a_job_that_nobody_waits_for_any_more_is_ended_and_the_next_ones_turn_comes() -> None:
    try:
        with pytest.raises(StatusError):
            await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
        pid = offload._places().helper.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        left = asyncio.ensure_future(offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(StatusError, match="Invalid value"):
            await offload.by_helper("bob", "finish_create", CONFIGMAP, "default", NEVER, True)
    finally:
        await offload.close()


async def test_a_short_job_that_nobody_waits_for_any_more_ends_by_itself() -> None:
    try:
        with pytest.raises(StatusError):
            await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
        pid = offload._places().helper.pid
        left = asyncio.ensure_future(offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(StatusError, match="Invalid value"):
            await offload.by_helper("bob", "finish_create", CONFIGMAP, "default", NEVER, True)
        assert offload._places().helper.pid == pid
    finally:
        await offload.close()


async def test_a_job_that_takes_too_long_is_a_timeout_to_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "JOB_SECONDS", 0.0)
    with pytest.raises(StatusError) as found:
        await offload.by_helper("ann", "finish_create", CONFIGMAP, "default", NEVER, True)
    assert (found.value.code, found.value.reason) == (504, "Timeout")


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
async def test_a_large_body_is_answered_as_a_small_one_that_says_the_same(
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
async def test_a_large_update_is_answered_as_a_small_one_that_says_the_same(
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
"""What admission leaves of an object's names: ... what they were, None nothing."""


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


_AGE = re.compile(rb'"[0-9]+s"')
FORMS = [
    ({"Accept": "application/yaml"}, "", 2),
    ({"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, "&includeObject=Object", 2),
    ({"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}, "", 2),
    ({"Accept": "application/json"}, "&pretty=1", 2),
    ({"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, "&includeObject=Object&pretty=1", 2),
    ({"Accept": "application/vnd.kubernetes.protobuf"}, "", 0),
    ({"Accept": "application/json"}, "", 0),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("headers", "options", "jobs"), FORMS)
async def test_a_huge_list_is_written_by_the_process_in_pieces_and_says_the_same(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], options: str, jobs: int
) -> None:
    for number in range(4):
        body = config_map(f"listed-{number}", data={"key": "v" * 1024}, metadata={"labels": {"list": "huge"}})
        await server.request("POST", CONFIGMAPS, body)
    asked = list[str]()
    original = offload.by_helper

    async def by_helper(user: str, job: str, *args: Any, reading: bool) -> Any:
        asked.append(job)
        return await original(user, job, *args, reading=reading)

    monkeypatch.setattr(offload, "by_helper", by_helper)
    path = f"{CONFIGMAPS}?labelSelector=list%3Dhuge{options}"
    small = await server.request("GET", path, headers=headers)
    assert asked == []
    monkeypatch.setattr(offload, "HUGE", 4096)
    monkeypatch.setattr(offload, "LARGE", 4096)
    monkeypatch.setattr(offload, "PIECE", 3000)
    huge = await server.request("GET", path, headers=headers)
    assert _AGE.sub(b"age", huge.body) == _AGE.sub(b"age", small.body)
    assert huge.headers["Content-Type"] == small.headers["Content-Type"]
    assert len(asked) == jobs


@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_is_written_by_the_thread_where_the_process_fails(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        body = config_map(f"failing-{number}", data={"key": "v" * 1024}, metadata={"labels": {"list": "failing"}})
        await server.request("POST", CONFIGMAPS, body)
    failed = list[str]()

    async def call(self: Helper, job: str, *args: Any) -> Any:
        failed.append(job)
        raise HelperFailed("MemoryError")

    monkeypatch.setattr(Helper, "call", call)
    monkeypatch.setattr(offload, "HUGE", 1024)
    monkeypatch.setattr(offload, "LARGE", 1024)
    monkeypatch.setattr(offload, "PIECE", 1024)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = await server.request("GET", f"{CONFIGMAPS}?labelSelector=list%3Dfailing", headers=table)
    assert [row["cells"][0] for row in answer.json["rows"]] == ["failing-0", "failing-1"]
    assert failed == ["show_items"] * 2


@dataclass
class Held:
    """Jobs that the helper process was given, which are over when that is set."""

    jobs: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@pytest_asyncio.fixture(loop_scope="module")
async def held(server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    """Let the helper process hold its jobs back while three objects are there to be listed."""
    for number in range(3):
        body = config_map(f"held-{number}", data={"key": "v" * 1024}, metadata={"labels": {"list": "held"}})
        await server.request("POST", CONFIGMAPS, body)
    made = Held()

    async def call(self: Helper, job: str, *args: Any) -> Any:
        made.jobs.append(job)
        await made.over.wait()
        return [b"{}"]

    monkeypatch.setattr(Helper, "call", call)
    for size in ("HUGE", "LARGE", "PIECE"):
        monkeypatch.setattr(offload, size, 1024)
    yield made
    made.over.set()


HELD = f"{CONFIGMAPS}?labelSelector=list%3Dheld"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_whose_client_has_left_has_no_more_turns(
    server: ApiUnderTest, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed = asyncio.Event()
    original = ApiProtocol.connection_lost

    def connection_lost(self: ApiProtocol, exc: Exception | None) -> None:
        original(self, exc)
        noticed.set()

    monkeypatch.setattr(ApiProtocol, "connection_lost", connection_lost)
    left = asyncio.ensure_future(server.request("GET", HELD, headers=TABLE))
    async with asyncio.timeout(10):
        while not held.jobs:
            await asyncio.sleep(0.01)
        left.cancel()
        await noticed.wait()
        held.over.set()
        while server.api.pipeline.in_flight()["readOnly"]:
            await asyncio.sleep(0.01)
    assert held.jobs == ["show_items"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_waits_for_its_turn_as_long_as_a_request_may_take(
    server: ApiUnderTest, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "LEFT_SECONDS", 0.0)
    pipeline = server.api.pipeline
    monkeypatch.setattr(pipeline, "config", replace(pipeline.config, request_timeout=0.2))
    answer = await server.request("GET", HELD, headers=TABLE)
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert held.jobs == ["show_items"]


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
