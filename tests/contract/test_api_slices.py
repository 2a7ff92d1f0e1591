"""Requests over many large objects leave the event loop to others in between, also where nothing is written or little sent."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.custom.conversion import Reader
from control.event_loop import pacing
from control.registry import deletion
from control.registry.registry import Registry
from control.server import resource_metrics as serve
from control.server.forms import Form
from control.storage import codec
from control.storage.watcher import WatchEvent
from tests.support import custom_resources
from tests.support.api_objects import CONFIGMAPS, config_map, pod
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
OBJECTS, REQUESTS = 12, 3
TEXT = "x" * 100_000
ROUND = pacing.SLICE_BYTES


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        registry = api.api.registry
        for number in range(OBJECTS):
            for kind, obj in (("configmaps", config_map(f"c{number}")), ("pods", pod(f"p{number}"))):
                obj["metadata"] |= {"namespace": "default", "uid": f"{kind}-{number}", "annotations": {"text": TEXT}}
                written = await registry.store.create(
                    f"/registry/{kind}/default/{obj['metadata']['name']}", codec.encode(obj)
                )
        await registry.cache.wait_fresh(written.revision)
        yield api


class Rounds:
    """Counts the bytes of the objects that are worked on in each round of the event loop."""

    def __init__(self) -> None:
        self.number, self.bytes = 0, Counter[int]()
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self.number += 1
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    def add(self, size: int) -> None:
        self.bytes[self.number] += size

    def close(self) -> None:
        self._next.cancel()


@pytest_asyncio.fixture(loop_scope="module")
async def rounds() -> AsyncIterator[Rounds]:
    made = Rounds()
    yield made
    made.close()


async def test_a_dry_run_of_the_deletion_of_a_collection_is_done_in_slices(
    server: ApiUnderTest, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = deletion.delete

    async def counted(registry: Registry, context: Any, resource: Any, namespace: str, name: str, options: Any) -> Any:
        entry = registry.cached(resource).get(resource.key(namespace, name))
        assert entry is not None
        rounds.add(len(entry.data))
        return await delete(registry, context, resource, namespace, name, options)

    monkeypatch.setattr(deletion, "delete", counted)
    path = f"{CONFIGMAPS}?dryRun=All&fieldSelector=metadata.name!=kube-root-ca.crt"
    answers = await asyncio.gather(*(server.request("DELETE", path) for _ in range(REQUESTS)))
    assert [(answer.status, len(answer.json["items"])) for answer in answers] == [(200, OBJECTS)] * REQUESTS
    assert rounds.bytes.total() >= REQUESTS * OBJECTS * len(TEXT)
    assert max(rounds.bytes.values()) <= ROUND


@pytest.mark.parametrize("form", ["Table", "PartialObjectMetadata"])
async def test_watch_events_in_other_forms_are_made_in_slices_or_beside_the_loop(
    server: ApiUnderTest, rounds: Rounds, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    event, beside = Form._event, list[int]()

    def counted(self: Form, watch_event: WatchEvent, *, columns: bool) -> bytes:
        if threading.current_thread() is threading.main_thread():
            rounds.add(len(watch_event.entry.data))
        else:
            beside.append(len(watch_event.entry.data))
        return event(self, watch_event, columns=columns)

    monkeypatch.setattr(Form, "_event", counted)
    accept = {"accept": f"application/json;as={form};v=v1;g=meta.k8s.io"}
    path = f"{CONFIGMAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name!=kube-root-ca.crt"
    answers = await asyncio.gather(*(server.request("GET", path, headers=accept) for _ in range(REQUESTS)))
    assert [answer.body.count(b'"ADDED"') for answer in answers] == [OBJECTS] * REQUESTS
    assert sum(beside) >= OBJECTS * len(TEXT)
    assert max(rounds.bytes.values(), default=0) <= ROUND


async def test_pods_are_looked_through_for_their_metrics_in_slices(
    server: ApiUnderTest, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    outline = serve.outline

    def counted(data: bytes) -> dict[str, Any]:
        rounds.add(len(data))
        return outline(data)

    monkeypatch.setattr(serve, "outline", counted)
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
    answers = await asyncio.gather(*(server.request("GET", path) for _ in range(REQUESTS)))
    assert [answer.json["items"] for answer in answers] == [[]] * REQUESTS
    assert rounds.bytes.total() >= REQUESTS * OBJECTS * len(TEXT)
    assert max(rounds.bytes.values()) <= ROUND


async def test_custom_objects_are_read_in_their_version_in_slices(
    server: ApiUnderTest, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await custom_resources.install(server, custom_resources.definition("Large"))
    for number in range(OBJECTS):
        made = custom_resources.obj("Large", f"l{number}")
        made["metadata"]["annotations"] = {"text": TEXT}
        await custom_resources.post(server, path, made)
    for entries in server.api.registry.cache._resources.values():
        for entry in entries.list().entries:
            entry.views = None  # as after a start
    defaulted = Reader._defaulted

    def counted(self: Reader, obj: dict[str, Any], version: str) -> dict[str, Any]:
        rounds.add(len(obj["metadata"].get("annotations", {}).get("text", "")))
        return defaulted(self, obj, version)

    monkeypatch.setattr(Reader, "_defaulted", counted)
    answers = await asyncio.gather(*(server.request("GET", path) for _ in range(REQUESTS)))
    assert [len(answer.json["items"]) for answer in answers] == [OBJECTS] * REQUESTS
    assert rounds.bytes.total() >= OBJECTS * len(TEXT)
    assert max(rounds.bytes.values()) <= ROUND
