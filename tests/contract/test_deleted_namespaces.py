"""A server that shares its store and lags behind keeps nothing that it creates in a namespace that is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.registry import creation, deleted_namespaces
from control.registry.context import SERVER, Context
from control.storage import cache
from control.storage.cache import WatchCache
from control.storage.store import Unavailable
from kube.errors import StatusError
from kube.resources import by_path
from tests.contract.test_lagging_server import CONFIGMAPS, Servers, configmap, servers

__all__ = ["servers"]
NAMESPACES = by_path("", "v1", "namespaces")
assert NAMESPACES is not None
KEY = "/registry/namespaces/shop"


async def namespace(found: Servers, *, terminating: bool, gone: bool) -> None:
    """Create a namespace that both servers have in their caches, and delete it so that the late one does not know."""
    found.late.store.gate.set()  # type: ignore[attr-defined]
    await creation.create(found.quick, Context(SERVER), NAMESPACES, "", {"metadata": {"name": "shop"}})
    item = await found.store.get(KEY)
    assert item is not None
    await found.late.cache.wait_fresh(item.revision)
    found.late.store.gate.clear()  # type: ignore[attr-defined]
    if terminating:
        value = item.value.replace(b'"phase":"Active"', b'"phase":"Terminating"')
        assert value != item.value
        item = await found.store.update(KEY, value, item.revision)
    if gone:
        await found.store.delete(KEY, item.revision)


async def create(found: Servers) -> dict[str, Any]:
    """Create a ConfigMap on the late server; return the error as a Status, nothing if there is none."""
    try:
        await creation.create(found.late, Context(SERVER), CONFIGMAPS, "shop", configmap("new"))
    except StatusError as error:
        return error.to_status()
    return {}


async def kept(found: Servers) -> bool:
    return await found.store.get("/registry/configmaps/shop/new") is not None


@pytest.mark.parametrize("catches_up", [False, True], ids=["still late", "catches up"])
async def test_nothing_stays_in_a_namespace_that_is_gone(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, *, catches_up: bool
) -> None:
    await namespace(servers, terminating=False, gone=True)
    if catches_up:
        monkeypatch.setattr(cache, "FRESH_SECONDS", 3.0)
        monkeypatch.setattr(WatchCache.wait_fresh, "__defaults__", (3.0,))
        asyncio.get_running_loop().call_later(0.05, servers.late.store.gate.set)  # type: ignore[attr-defined]
    status = await create(servers)
    assert (status["code"], status["message"]) == (404, 'namespaces "shop" not found')
    assert not await kept(servers)


async def test_nothing_is_added_to_a_namespace_that_is_being_deleted(servers: Servers) -> None:
    await namespace(servers, terminating=True, gone=False)
    status = await create(servers)
    assert status["code"] == 403 and status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert "unable to create new content in namespace shop because it is being terminated" in status["message"]
    assert not await kept(servers)


async def test_what_is_created_in_a_namespace_that_exists_stays(servers: Servers) -> None:
    await namespace(servers, terminating=False, gone=False)
    assert await create(servers) == {} and await kept(servers)


async def test_the_object_is_taken_back_when_the_store_answers_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await namespace(servers, terminating=False, gone=True)
    store, failures = servers.late.store, 3
    current_revision = store.current_revision

    async def failing() -> int:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Unavailable("no answer from the store")
        return await current_revision()

    monkeypatch.setattr(store, "current_revision", failing, raising=False)
    monkeypatch.setattr(deleted_namespaces, "RETRY_SECONDS", 0.0)
    assert (await create(servers))["code"] == 404 and not await kept(servers)
