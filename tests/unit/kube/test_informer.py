from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.api import core_v1
from kube.client import Client, Response
from kube.errors import StatusError
from kube.indexer import by_namespace
from kube.informer import Change, Informer, temporary_subscriptions
from kube.shrinking import SMALL
from tests.support.clock import FakeClock, settle
from tests.unit.kube.fake_api import FakeAPI

PODS = "/api/v1/pods"


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"nodeName": "n1"}}


@asynccontextmanager
async def following(api: FakeAPI, clock: FakeClock) -> AsyncIterator[tuple[Informer[core_v1.Pod], list[str]]]:
    informer = Informer(Client(api), core_v1.Pod, indexes={"namespace": by_namespace}, clock=clock)
    reported: list[str] = []

    def handler(change: Change[core_v1.Pod]) -> None:
        reported.append(f"{change.type} {change.key}")

    informer.subscribe(handler)
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    await settle()
    try:
        yield informer, reported
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_listed_and_what_is_watched_arrive_in_order() -> None:
    api = FakeAPI()
    api.put(f"{PODS}/a", pod("a"))
    async with following(api, FakeClock()) as (informer, reported):
        api.put(f"{PODS}/b", pod("b"))
        api.put(f"{PODS}/a", pod("a", labels={"x": "y"}))
        api.remove(f"{PODS}/b")
        await settle()
        assert reported == ["ADDED default/a", "ADDED default/b", "MODIFIED default/a", "DELETED default/b"]
        assert [p.metadata.name for p in informer.list()] == ["a"]
        assert [p.metadata.name for p in informer.by_index("namespace", "default")] == ["a"]
        assert informer.get("default/b") is None


async def test_objects_that_are_gone_need_no_memory() -> None:
    api = FakeAPI()
    async with following(api, FakeClock()) as (informer, changes):
        for number in range(2000):
            api.put(f"{PODS}/p{number}", pod(f"p{number}"))
        await settle()
        for number in range(1999):
            api.remove(f"{PODS}/p{number}")
        await settle()
        assert changes.count("DELETED default/p7") == 1
        assert [p.metadata.name for p in informer.by_index("namespace", "default")] == ["p1999"]
        held = (informer._objects, informer._indexes["namespace"], informer._indexes["namespace"]["default"])
        assert max(map(sys.getsizeof, held)) <= SMALL


async def test_a_broken_watch_goes_on_from_the_last_revision() -> None:
    api, clock = FakeAPI(), FakeClock()
    async with following(api, clock) as (_, reported):
        api.put(f"{PODS}/a", pod("a"))
        await settle()
        api.drop_watches()
        await clock.advance(1)
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert reported == ["ADDED default/a", "ADDED default/b"]
        watches = [query for verb, _, query, _ in api.requests if verb == "WATCH"]
        assert watches[-1]["resourceVersion"] == "1"
        assert len([r for r in api.requests if r[0] == "GET"]) == 1


async def test_an_expired_watch_lists_again_and_reports_the_differences() -> None:
    api, clock = FakeAPI(), FakeClock()
    for name in "abc":
        api.put(f"{PODS}/{name}", pod(name))
    async with following(api, clock) as (informer, reported):
        reported.clear()
        api.too_old = True
        quiet, api.watchers = api.watchers, []
        api.remove(f"{PODS}/a")
        api.put(f"{PODS}/b", pod("b", labels={"new": "1"}))
        api.remove(f"{PODS}/c")
        api.put(f"{PODS}/c", pod("c", uid="another"))
        for queue in quiet:
            queue.put_nowait(None)
        await clock.advance(1)
        assert reported == ["DELETED default/a", "MODIFIED default/b", "DELETED default/c", "ADDED default/c"]
        assert sorted(informer.keys()) == ["default/b", "default/c"]


async def test_lists_after_repeated_expired_watches_back_off() -> None:
    api, clock = FakeAPI(), FakeClock()
    async with following(api, clock):
        requested = len(api.requests)
        api.always_too_old = True
        api.drop_watches()
        await clock.advance(60)
        assert len(api.requests) - requested < 60
        api.always_too_old = False
        await clock.advance(6)
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert api.watchers


async def test_a_server_whose_revisions_went_back_is_listed_anew() -> None:
    api, clock = FakeAPI(), FakeClock()
    for name in "abc":
        api.put(f"{PODS}/{name}", pod(name))
    async with following(api, clock) as (informer, reported):
        reported.clear()
        restored = api.objects.pop(f"{PODS}/a")
        api.objects, api.revision = {f"{PODS}/a": restored}, 1
        api.drop_watches()
        await clock.advance(5)
        assert sorted(reported) == ["DELETED default/b", "DELETED default/c"]
        api.put(f"{PODS}/d", pod("d"))
        await settle()
        assert sorted(informer.keys()) == ["default/a", "default/d"]


async def test_requests_to_an_unreachable_server_are_retried_with_back_off_and_nothing_is_lost() -> None:
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


async def test_a_failing_handler_does_not_prevent_the_calls_of_others() -> None:
    api = FakeAPI()
    informer = Informer(Client(api), core_v1.Pod)
    reported = []

    def broken(_: Change[core_v1.Pod]) -> None:
        raise RuntimeError("a bug")

    informer.subscribe(broken)
    informer.subscribe(lambda change: reported.append(change.key))
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    await settle()
    api.put(f"{PODS}/a", pod("a"))
    await settle()
    assert reported == ["default/a"]
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
    async with following(api, FakeClock()) as (informer, reported):
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
        assert reported == ["ADDED default/a", "ADDED default/b"]


async def test_a_rejected_list_is_logged_once_and_retried_with_back_off(
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
        'watching Pod: pods is forbidden: User "n" cannot list resource "pods" in API group "" at the cluster scope',
        "watching Pod again",
    ]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden"), (500, "InternalError")])
async def test_the_log_of_a_denial_names_the_role_that_grants_it(
    caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    class Refusing(FakeAPI):
        async def request(self, *arguments: Any, **options: Any) -> Response:
            raise StatusError(code, reason, "no")

    informer = Informer(Client(Refusing()), core_v1.Pod, granted_by="wherry:network-policy", clock=FakeClock())
    task = asyncio.create_task(informer.run())
    await settle()
    granted = "; the ClusterRole wherry:network-policy in docs/install.md grants it" if code == 403 else ""
    assert [r.getMessage() for r in caplog.records] == [f"watching Pod: no{granted}"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- objects that do not fit their type -------------------------------------------------------------------------------
BAD = {"metadata": {"name": "bad", "namespace": "default"}, "spec": {"nodeName": 5}}


@asynccontextmanager
async def skipping(api: FakeAPI) -> AsyncIterator[Informer[core_v1.Pod]]:
    informer = Informer(Client(api), core_v1.Pod, skip_unreadable=True, clock=FakeClock())
    task = asyncio.create_task(informer.run())
    await settle()
    try:
        yield informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_unreadable_object_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeAPI()
    api.put(f"{PODS}/bad", BAD)
    api.put(f"{PODS}/a", pod("a"))
    async with skipping(api) as informer:
        assert informer.synced
        api.put(f"{PODS}/b", pod("b"))
        await settle()
        assert sorted(informer.keys()) == ["default/a", "default/b"]
        api.put(f"{PODS}/b", {**BAD, "metadata": {"name": "b", "namespace": "default"}})
        api.put(f"{PODS}/bad", pod("bad"))
        await settle()
        assert sorted(informer.keys()) == ["default/a", "default/bad"]
    skipped = [record.getMessage() for record in caplog.records if "skipping" in record.getMessage()]
    assert [line.split(",")[0] for line in skipped] == ["skipping Pod default/bad", "skipping Pod default/b"]


async def test_an_unreadable_object_stops_an_informer_that_keeps_what_it_knew() -> None:
    api, clock = FakeAPI(), FakeClock()
    api.put(f"{PODS}/a", pod("a"))
    async with following(api, clock) as (informer, reported):
        api.put(f"{PODS}/a", {**BAD, "metadata": {"name": "a", "namespace": "default"}})
        await settle()
        await clock.advance(10)
        assert list(informer.keys()) == ["default/a"]
        assert reported == ["ADDED default/a"]
