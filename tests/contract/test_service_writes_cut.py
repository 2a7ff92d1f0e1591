"""Allocations of a Service stay its own at every point where its request is cut off or its write's response is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from control.registry import creation, deletion, updating
from control.registry.context import SERVER, Context
from control.registry.core.service.strategy import ServiceStrategy
from control.registry.creation import Allocation
from control.registry.deletion_plan import DeleteOptions
from control.server_tasks import service_repair
from control.storage.store import Unavailable
from kube.errors import StatusError
from kube.resources import by_path
from tests.support.cancelled_writes import check_allocations, settled
from tests.support.control import ApiUnderTest, api_server

SERVICES = by_path("", "v1", "services")
ADDRESSES = by_path("networking.k8s.io", "v1", "ipaddresses")
assert SERVICES is not None and ADDRESSES is not None
CUTS = 60
"""More turns of the event loop than a write takes."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        yield server


def service(name: str, address: str, port: int) -> dict[str, Any]:
    ports = [{"port": 80, "nodePort": port}]
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "clusterIP": address, "ports": ports}}


async def cut(work: Any, turns: int) -> bool:
    """Cancel some work after so many turns of the loop; say whether it was cut."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
        if turns > CUTS // 2:
            await asyncio.sleep(0.0003)  # the store's thread takes its time, too
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return task.cancelled()


async def test_a_write_cut_off_anywhere_leaves_addresses_and_ports_right(api: ApiUnderTest) -> None:
    registry = api.api.registry
    cuts = 0
    for turns in range(CUTS):
        name, obj = f"s{turns}", service(f"s{turns}", f"10.96.1.{turns + 1}", 30100 + turns)
        cuts += await cut(creation.create(registry, Context(SERVER), SERVICES, "default", obj), turns)
        await settled(api)
        check_allocations(api)
        if registry.peek(SERVICES, "default", name) is None:
            await creation.create(
                registry, Context(SERVER), SERVICES, "default", service(name, f"10.96.1.{turns + 1}", 30100 + turns)
            )

        async def other_port(old: dict[str, Any] | None, port: int = 30300 + turns) -> dict[str, Any]:
            assert old is not None
            old["spec"]["ports"][0]["nodePort"] = port
            return old

        cuts += await cut(updating.update(registry, Context(SERVER), SERVICES, "default", name, other_port), turns)
        await settled(api)
        check_allocations(api)
        cuts += await cut(deletion.delete(registry, Context(SERVER), SERVICES, "default", name, DeleteOptions()), turns)
        await settled(api)
        check_allocations(api)
    assert cuts > 20, "most writes were cut off in the middle"


async def test_a_lost_answer_of_the_store_is_settled_by_reading(
    api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, store = api.api.registry, api.api.registry.store
    lost: list[str] = []

    def lose(verb: str) -> None:
        real = getattr(store, verb)

        async def call(key: str, *rest: Any) -> Any:
            done = await real(key, *rest)
            if "/services/specs/" in key:
                lost.append(verb)
                raise Unavailable("the connection broke")
            return done

        monkeypatch.setattr(store, verb, call)

    for verb in ("create", "update", "delete"):
        lose(verb)
    made = await creation.create(registry, Context(SERVER), SERVICES, "default", service("a", "10.96.1.1", 30100))
    assert made.created
    await settled(api)
    check_allocations(api)

    async def relabel(old: dict[str, Any] | None) -> dict[str, Any]:
        assert old is not None
        old["spec"]["ports"][0]["nodePort"] = 30200
        return old

    await updating.update(registry, Context(SERVER), SERVICES, "default", "a", relabel)
    await settled(api)
    check_allocations(api)
    _, gone, _ = await deletion.delete(registry, Context(SERVER), SERVICES, "default", "a", DeleteOptions())
    assert gone
    await settled(api)
    check_allocations(api)
    assert lost == ["create", "update", "delete"]


async def test_what_nobody_can_settle_keeps_its_address_until_the_comparison(
    api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, store = api.api.registry, api.api.registry.store
    strategy = registry.strategy(SERVICES)
    assert isinstance(strategy, ServiceStrategy)
    create = store.create

    async def fails(key: str, *rest: Any) -> Any:
        if "/services/specs/" in key:
            raise Unavailable("disk full")
        return await create(key, *rest)

    monkeypatch.setattr(store, "create", fails)
    with pytest.raises(StatusError, match="disk full"):
        await creation.create(registry, Context(SERVER), SERVICES, "default", service("a", "10.96.1.1", 30100))
    monkeypatch.setattr(store, "create", create)
    with pytest.raises(StatusError, match="already allocated"):
        await creation.create(registry, Context(SERVER), SERVICES, "default", service("b", "10.96.1.1", 30101))
    await strategy.allocator.repair(Allocation(registry, Context(SERVER)))
    assert "10.96.1.1" in {e.obj["metadata"]["name"] for e in registry.cached(ADDRESSES).list().entries}, "too young"
    monkeypatch.setattr("control.registry.core.service.allocator.ORPHAN_AFTER", timedelta(seconds=-1))
    await strategy.allocator.repair(Allocation(registry, Context(SERVER)))
    check_allocations(api)
    await creation.create(registry, Context(SERVER), SERVICES, "default", service("b", "10.96.1.1", 30100))
    check_allocations(api)


async def test_an_update_that_nobody_can_settle_keeps_its_port_until_the_comparison(
    api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, store = api.api.registry, api.api.registry.store
    strategy = registry.strategy(SERVICES)
    assert isinstance(strategy, ServiceStrategy)
    await creation.create(registry, Context(SERVER), SERVICES, "default", service("a", "10.96.1.1", 30100))
    update = store.update

    async def fails(key: str, *rest: Any) -> Any:
        if "/services/specs/" in key:
            raise Unavailable("disk full")
        return await update(key, *rest)

    async def other_port(old: dict[str, Any] | None) -> dict[str, Any]:
        assert old is not None
        old["spec"]["ports"][0]["nodePort"] = 30200
        return old

    monkeypatch.setattr(store, "update", fails)
    with pytest.raises(StatusError, match="disk full"):
        await updating.update(registry, Context(SERVER), SERVICES, "default", "a", other_port)
    monkeypatch.setattr(store, "update", update)
    with pytest.raises(StatusError, match="already allocated"):
        await creation.create(registry, Context(SERVER), SERVICES, "default", service("b", "10.96.1.2", 30200))
    await strategy.allocator.repair(Allocation(registry, Context(SERVER)))
    check_allocations(api)
    await creation.create(registry, Context(SERVER), SERVICES, "default", service("b", "10.96.1.2", 30200))
    check_allocations(api)


async def test_a_server_makes_a_missing_record_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_repair, "SECONDS", 0.05)
    async with api_server(tmp_path) as api:
        registry = api.api.registry
        await creation.create(registry, Context(SERVER), SERVICES, "default", service("a", "10.96.1.1", 30100))
        options = DeleteOptions(grace_period=0)
        _, gone, _ = await deletion.delete(registry, Context(SERVER), ADDRESSES, "", "10.96.1.1", options)
        assert gone
        async with asyncio.timeout(10):
            while registry.peek(ADDRESSES, "", "10.96.1.1") is None:
                await asyncio.sleep(0.01)


async def test_a_comparison_amid_a_write_keeps_what_the_write_has(
    api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, store = api.api.registry, api.api.registry.store
    strategy = registry.strategy(SERVICES)
    assert isinstance(strategy, ServiceStrategy)
    create, begun, released = store.create, asyncio.Event(), asyncio.Event()

    async def held(key: str, *rest: Any) -> Any:
        if key.endswith("/services/specs/default/a"):
            begun.set()
            await released.wait()
        return await create(key, *rest)

    monkeypatch.setattr(store, "create", held)
    first = asyncio.create_task(
        creation.create(registry, Context(SERVER), SERVICES, "default", service("a", "10.96.1.1", 30100))
    )
    await begun.wait()
    await strategy.allocator.repair(Allocation(registry, Context(SERVER)))
    with pytest.raises(StatusError, match="already allocated"):
        await creation.create(registry, Context(SERVER), SERVICES, "default", service("b", "10.96.1.2", 30100))
    released.set()
    await first
    check_allocations(api)
