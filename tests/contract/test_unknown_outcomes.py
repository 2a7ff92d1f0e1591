"""Writes that take effect although their response is lost: they are not made a second time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from control.storage.store import Unavailable
from tests.support.control import ApiUnderTest, api_server

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        yield server


def lose_response(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, suffix: str) -> Callable[[], int]:
    """Lose the response to the first update of a key, after which another writer changes the object; return a count."""
    store = api.api.registry.store
    real, calls = store.update, 0

    async def update(key: str, value: bytes, expected: int, ttl: int = 0) -> Any:
        nonlocal calls
        if not key.endswith(suffix):
            return await real(key, value, expected, ttl)
        calls += 1
        made = await real(key, value, expected, ttl)
        if calls > 1:
            return made
        other = json.loads(value)
        other["metadata"].setdefault("annotations", {})["other"] = "writer"
        await real(key, json.dumps(other).encode(), made.revision, ttl)
        raise Unavailable("the connection was lost")

    monkeypatch.setattr(store, "update", update)
    return lambda: calls


async def test_a_patch_is_applied_once(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.request("POST", MAPS, {"metadata": {"name": "a", "finalizers": ["x/one"]}})
    updates = lose_response(api, monkeypatch, "/configmaps/default/a")
    patch = [{"op": "add", "path": "/metadata/finalizers/-", "value": "x/two"}]
    answer = await api.request("PATCH", f"{MAPS}/a", patch, headers=JSON_PATCH)
    assert (answer.status, updates()) == (500, 1) and "the connection was lost" in answer.json["message"]
    stored = (await api.request("GET", f"{MAPS}/a")).json
    assert stored["metadata"]["finalizers"] == ["x/one", "x/two"]


async def test_a_binding_is_not_checked_against_its_own_effect(
    api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await api.request("POST", PODS, pod)).status == 201
    updates = lose_response(api, monkeypatch, "/pods/default/p")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    answer = await api.request("POST", f"{PODS}/p/binding", binding)
    assert (answer.status, updates()) == (500, 1)
    assert (await api.request("GET", f"{PODS}/p")).json["spec"]["nodeName"] == "n"
