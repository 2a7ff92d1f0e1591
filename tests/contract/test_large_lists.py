"""Large lists over a real server: written in pieces by the helper process, with the content of small ones."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from control.event_loop import offload
from control.event_loop.helper_client import Helper, HelperFailed
from control.http.protocol import ApiProtocol
from tests.support.api_objects import CONFIGMAPS, config_map
from tests.support.control import ApiUnderTest, api_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        yield api


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
async def test_a_huge_list_written_in_pieces_by_the_helper_process_has_the_same_content(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], options: str, jobs: int
) -> None:
    for number in range(4):
        body = config_map(f"listed-{number}", data={"key": "v" * 1024}, metadata={"labels": {"list": "huge"}})
        await server.request("POST", CONFIGMAPS, body)
    requested = list[str]()
    original = offload.by_helper

    async def by_helper(user: str, job: str, *args: Any, reading: bool) -> Any:
        requested.append(job)
        return await original(user, job, *args, reading=reading)

    monkeypatch.setattr(offload, "by_helper", by_helper)
    path = f"{CONFIGMAPS}?labelSelector=list%3Dhuge{options}"
    small = await server.request("GET", path, headers=headers)
    assert requested == []
    monkeypatch.setattr(offload, "HUGE", 4096)
    monkeypatch.setattr(offload, "LARGE", 4096)
    monkeypatch.setattr(offload, "PIECE", 3000)
    huge = await server.request("GET", path, headers=headers)
    assert _AGE.sub(b"age", huge.body) == _AGE.sub(b"age", small.body)
    assert huge.headers["Content-Type"] == small.headers["Content-Type"]
    assert len(requested) == jobs


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
    monkeypatch.setattr(pipeline, "config", msgspec.structs.replace(pipeline.config, request_timeout=0.2))
    answer = await server.request("GET", HELD, headers=TABLE)
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert held.jobs == ["show_items"]
