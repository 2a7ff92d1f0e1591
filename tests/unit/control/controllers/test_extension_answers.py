"""Controllers that request every resource of the server, any number of which an extension API server may answer."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.controllers import namespace, quota_counts
from control.controllers.autoscaling.target import Targets
from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage.item_requests import ItemRequests
from control.controllers.garbage.resource_monitors import ResourceMonitors
from kube.client import Client, Response
from kube.errors import StatusError, long_answer
from tests.support.clock import FakeClock

VERBS = ["list", "watch", "delete", "deletecollection"]
ROOT = "/apis/wardle.example.com/v1"
FLUNDERS = DiscoveredResource("wardle.example.com", "v1", "flunders", "Flunder", True, frozenset(VERBS))


class Extension:
    """Answers every list with `body`, when `ready`, and counts the lists that are under way."""

    def __init__(self, resources: int = 1, body: bytes = b'{"items": []}') -> None:
        self._resources, self.body = resources, body
        self.ready = asyncio.Event()
        self.ready.set()
        self.now, self.most, self.received, self.limits = 0, 0, 0, set[int | None]()

    async def request(
        self, method: str, path: str, *, query: Any = None, most_bytes: int | None = None, **options: Any
    ) -> Response:
        if path in ("/api", "/apis"):
            return Response(200, {}, json.dumps({"items": [self._group()] if path == "/apis" else []}).encode())
        self.received += 1
        self.limits.add(most_bytes)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            await self.ready.wait()
        finally:
            self.now -= 1
        return Response(200, {}, self.body)

    def _group(self) -> dict[str, Any]:
        entry = {"responseKind": {"kind": "Flunder"}, "scope": "Namespaced", "verbs": VERBS}
        resources = [{**entry, "resource": f"flunders{number or ''}"} for number in range(self._resources)]
        return {"metadata": {"name": "wardle.example.com"}, "versions": [{"version": "v1", "resources": resources}]}

    def client(self) -> Client:
        return Client(cast(Any, self))


async def test_a_namespaces_deletion_requests_a_group_versions_resources_a_few_at_a_time() -> None:
    extension = Extension(20)
    remains = await namespace.delete_content(extension.client(), "shop", 0.0)
    assert remains.empty and extension.received == 20
    assert extension.most == namespace.AT_ONCE and extension.limits == {4 << 20}


async def test_a_namespaces_deletion_gives_a_silent_group_version_up(monkeypatch: pytest.MonkeyPatch) -> None:
    extension = Extension(20)
    extension.ready.clear()
    monkeypatch.setattr(namespace, "VERSION_SECONDS", 0.01)
    remains = await namespace.delete_content(extension.client(), "shop", 0.0)
    assert remains.failures == ["wardle.example.com/v1: its objects were not deleted within 0.01 seconds"]
    assert (extension.received, extension.now) == (namespace.AT_ONCE, 0)


@pytest.mark.parametrize(
    "body", [b"[]", b"<html>", b'{"items": 5}', b'{"items": [5]}', b'{"items": [{"metadata": 5}]}']
)
async def test_an_answer_that_is_no_list_is_a_failure_of_its_resource(body: bytes) -> None:
    remains = await namespace.delete_content(Extension(body=body).client(), "shop", 0.0)
    (failure,) = remains.failures
    assert failure.startswith("flunders.wardle.example.com: ") and "cannot be read" in failure
    failures: dict[str, StatusError] = {}
    client = Extension(body=b"[]").client()
    assert await quota_counts.count_objects(client, "shop", ["count/flunders.wardle.example.com"], failures) == {}
    assert list(failures) == ["count/flunders.wardle.example.com"]


class IgnoresLimit(Extension):
    """Answers with all its objects whatever `limit` is, and deletes them."""

    def __init__(self, objects: int) -> None:
        super().__init__()
        self.objects = [{"metadata": {"name": f"f{number}"}, "spec": "x" * 60_000} for number in range(objects)]

    async def request(
        self, method: str, path: str, *, query: Any = None, most_bytes: int | None = None, **options: Any
    ) -> Response:
        if method == "DELETE":
            self.objects = []
        self.body = json.dumps({"items": self.objects}).encode()
        if path not in ("/api", "/apis") and most_bytes is not None and len(self.body) > most_bytes:
            raise long_answer(path, most_bytes)
        return await super().request(method, path, query=query, most_bytes=most_bytes, **options)


@pytest.mark.parametrize("objects", [1, 100])
async def test_a_server_that_ignores_limit_is_counted_and_cleared(objects: int) -> None:
    server, failures = IgnoresLimit(objects), dict[str, StatusError]()
    counts = await quota_counts.count_objects(server.client(), "shop", ["count/flunders.wardle.example.com"], failures)
    assert counts == {"count/flunders.wardle.example.com": objects} and not failures
    remains = await namespace.delete_content(server.client(), "shop", 0.0)
    assert remains.empty and not server.objects


async def test_a_quota_counts_no_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"metadata": {"continue": "again"}, "items": [{}]}'
    monkeypatch.setattr(quota_counts, "COUNT_SECONDS", 0.01)
    failures: dict[str, StatusError] = {}
    client = Extension(body=body).client()
    assert await quota_counts.count_objects(client, "shop", ["count/flunders.wardle.example.com"], failures) == {}
    assert failures["count/flunders.wardle.example.com"].code == 504


async def test_the_garbage_collector_lists_a_group_versions_resources_a_few_at_a_time() -> None:
    extension = Extension(20)
    extension.ready.clear()
    context = SimpleNamespace(client=extension.client(), clock=FakeClock(), informers=None)
    monitors = ResourceMonitors(cast(Any, context), lambda *change: None, lambda key: None)
    async with asyncio.TaskGroup() as group:
        await monitors.update(group)
        async with asyncio.timeout(30):
            while extension.received < 4:
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
        assert (extension.received, extension.now) == (4, 4)
        for task in monitors.monitored.values():
            assert task is not None
            task.cancel()


async def test_a_scale_or_an_object_that_is_none_is_an_error_of_its_server() -> None:
    client = Extension(body=b'{"metadata": 5}').client()
    with pytest.raises(StatusError, match="cannot be read"):
        await Targets(client, FakeClock()).scale(FLUNDERS, "shop", "a")
    with pytest.raises(StatusError, match="cannot be read"):
        await ItemRequests(client).find(FLUNDERS, "shop", "a")
