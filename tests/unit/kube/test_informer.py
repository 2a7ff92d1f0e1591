from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.api import core_v1
from kube.client import Client
from kube.clock import FakeClock, settle
from kube.informer import Change, Informer, by_namespace, temporary_subscriptions
from tests.unit.kube.fake_api import FakeAPI

PODS = "/api/v1/pods"


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"nodeName": "n1"}}


@asynccontextmanager
async def following(api: FakeAPI, clock: FakeClock) -> AsyncIterator[tuple[Informer[core_v1.Pod], list[str]]]:
    informer = Informer(Client(api), core_v1.Pod, indexes={"namespace": by_namespace}, clock=clock)
    told: list[str] = []

    def handler(change: Change[core_v1.Pod]) -> None:
        told.append(f"{change.type} {change.key}")

    informer.subscribe(handler)
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    await settle()
    try:
        yield informer, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_listed_and_what_is_watched_arrive_in_order() -> None:
    api = FakeAPI()
    api.put(f"{PODS}/a", pod("a"))
    async with following(api, FakeClock()) as (informer, told):
        api.put(f"{PODS}/b", pod("b"))
        api.put(f"{PODS}/a", pod("a", labels={"x": "y"}))
        api.remove(f"{PODS}/b")
        await settle()
        assert told == ["ADDED default/a", "ADDED default/b", "MODIFIED default/a", "DELETED default/b"]
        assert [p.metadata.name for p in informer.list()] == ["a"]
        assert [p.metadata.name for p in informer.by_index("namespace", "default")] == ["a"]
        assert informer.get("default/b") is None


async def test_a_broken_watch_goes_on_from_the_last_revision() -> None:
    api, clock = FakeAPI(), FakeClock()
    async with following(api, clock) as (_, told):
        api.put(f"{PODS}/a", pod("a"))
        await settle()
        api.drop_watches()
        await clock.advance(1)
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert told == ["ADDED default/a", "ADDED default/b"]
        watches = [query for verb, _, query, _ in api.requests if verb == "WATCH"]
        assert watches[-1]["resourceVersion"] == "1"
        assert len([r for r in api.requests if r[0] == "GET"]) == 1


async def test_an_expired_watch_lists_again_and_tells_the_difference() -> None:
    api, clock = FakeAPI(), FakeClock()
    for name in "abc":
        api.put(f"{PODS}/{name}", pod(name))
    async with following(api, clock) as (informer, told):
        told.clear()
        api.too_old = True
        quiet, api.watchers = api.watchers, []
        api.remove(f"{PODS}/a")
        api.put(f"{PODS}/b", pod("b", labels={"new": "1"}))
        api.remove(f"{PODS}/c")
        api.put(f"{PODS}/c", pod("c", uid="another"))
        for queue in quiet:
            queue.put_nowait(None)
        await clock.advance(1)
        assert told == ["DELETED default/a", "MODIFIED default/b", "DELETED default/c", "ADDED default/c"]
        assert sorted(informer.keys()) == ["default/b", "default/c"]


async def test_a_server_that_refuses_every_watch_as_too_old_is_asked_with_growing_pauses() -> None:
    api, clock = FakeAPI(), FakeClock()
    async with following(api, clock):
        asked = len(api.requests)
        api.always_too_old = True
        api.drop_watches()
        await clock.advance(60)
        assert len(api.requests) - asked < 60
        api.always_too_old = False
        await clock.advance(6)
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert api.watchers


async def test_a_server_whose_revisions_went_back_is_listed_anew() -> None:
    api, clock = FakeAPI(), FakeClock()
    for name in "abc":
        api.put(f"{PODS}/{name}", pod(name))
    async with following(api, clock) as (informer, told):
        told.clear()
        restored = api.objects.pop(f"{PODS}/a")
        api.objects, api.revision = {f"{PODS}/a": restored}, 1
        api.drop_watches()
        await clock.advance(5)
        assert sorted(told) == ["DELETED default/b", "DELETED default/c"]
        api.put(f"{PODS}/d", pod("d"))
        await settle()
        assert sorted(informer.keys()) == ["default/a", "default/d"]


async def test_a_server_that_is_away_is_asked_again_with_growing_pauses_and_nothing_is_lost() -> None:
    api, clock = FakeAPI(), FakeClock()
    api.put(f"{PODS}/a", pod("a"))
    async with following(api, clock) as (informer, _):
        api.away = True
        api.drop_watches()
        await clock.advance(60)
        tries = len([r for r in api.requests if r[0] == "WATCH"])
        assert 12 <= tries <= 30
        assert informer.get("default/a") is not None
        api.away = False
        api.put(f"{PODS}/b", pod("b"))
        await clock.advance(10)
        api.put(f"{PODS}/c", pod("c"))
        await settle()
        assert informer.get("default/c") is not None


async def test_a_failing_handler_does_not_keep_others_from_being_told() -> None:
    api = FakeAPI()
    informer = Informer(Client(api), core_v1.Pod)
    told = []

    def broken(_: Change[core_v1.Pod]) -> None:
        raise RuntimeError("a bug")

    informer.subscribe(broken)
    informer.subscribe(lambda change: told.append(change.key))
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    await settle()
    api.put(f"{PODS}/a", pod("a"))
    await settle()
    assert told == ["default/a"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_managed_fields_are_not_kept_in_memory() -> None:
    api = FakeAPI()
    api.put(f"{PODS}/a", pod("a", managedFields=[{"manager": "kubectl"}]))
    async with following(api, FakeClock()) as (informer, _):
        found = informer.get("default/a")
        assert found is not None
        assert found.metadata.managed_fields == []


async def test_temporary_subscriptions_end_with_their_block_also_those_of_its_tasks() -> None:
    api = FakeAPI()
    async with following(api, FakeClock()) as (informer, told):
        heard: list[str] = []

        async def later() -> None:
            informer.subscribe(lambda change: heard.append(f"task {change.key}"))

        with temporary_subscriptions():
            informer.subscribe(lambda change: heard.append(f"block {change.key}"))
            await asyncio.create_task(later())
            api.put(f"{PODS}/a", pod("a"))
            await settle()
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert heard == ["block default/a", "task default/a"]
        assert told == ["ADDED default/a", "ADDED default/b"]


async def test_what_the_server_refuses_is_said_once_and_asked_for_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, clock = FakeAPI(), FakeClock()
    api.refused = 'pods is forbidden: User "n" cannot list resource "pods" in API group "" at the cluster scope'
    informer = Informer(Client(api), core_v1.Pod, clock=clock)
    task = asyncio.create_task(informer.run())
    with caplog.at_level(logging.INFO):
        await settle()
        await clock.advance(600)
        assert 25 <= len(api.requests) <= 40
        api.refused = ""
        await clock.advance(40)
    assert informer.synced
    assert [r.getMessage() for r in caplog.records] == [
        'following Pod: pods is forbidden: User "n" cannot list resource "pods" in API group "" at the cluster scope',
        "following Pod again",
    ]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
